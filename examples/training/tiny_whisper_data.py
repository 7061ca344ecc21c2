"""Training data of tiny-whisper on disk: spectrograms, sentences and batches of them.

Recordings from `speech_synthesis.py` are turned into raw log-mel frames once and kept in
shards outside the repository; clamping and scaling happen after padding, so that a row
equals what `WhisperFeatureExtractor` makes of the padded audio. Which recordings form the
batch of a step depends on seed and step only, so training resumes where it stopped.
"""

import math
import multiprocessing
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from speech_grammar import Language
from speech_synthesis import Audio, Recording, Studio
from tiny_whisper_tokens import WINDOW_S, RowMaker, TimedText
from transformers import WhisperFeatureExtractor

NUM_MELS = 80
WINDOW_FRAMES = WINDOW_S * 100
SHARD_SIZE = 1000
_FLOOR = -10.0
_HOP, _FFT = 160, 400

Frames = npt.NDArray[np.float16]


def feature_extractor() -> WhisperFeatureExtractor:
    """Whisper's features for this model's window."""
    return WhisperFeatureExtractor(feature_size=NUM_MELS, chunk_length=WINDOW_S)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a shard says about one recording; `words` are (text, start, end) for alignment."""

    language: Language
    speech_s: float
    num_frames: int
    sentences: list[TimedText]
    words: list[tuple[str, float, float]]


class Counted(Protocol):
    """What a shard says about something with so many frames."""

    @property
    def num_frames(self) -> int: ...


EntryT = TypeVar("EntryT", bound=Counted)


class LogMel:
    """Raw log10 mel frames of audio, without the padding behind it."""

    def __init__(self) -> None:
        filters = np.asarray(feature_extractor().mel_filters, dtype=np.float32)
        self._filters = torch.from_numpy(filters.T.copy())
        self._window = torch.hann_window(_FFT)

    def __call__(self, audio: Audio) -> Frames:
        """float16 [frames, 80]; every later frame of the padded window is the floor."""
        num_frames = min(WINDOW_FRAMES, math.ceil((len(audio) + _FFT // 2) / _HOP))
        padding = np.zeros(max(0, min(2 * _FFT, WINDOW_S * 16_000 - len(audio))), np.float32)
        padded = torch.from_numpy(np.concatenate([audio, padding]))
        spectrum = torch.stft(padded, _FFT, _HOP, window=self._window, return_complex=True)
        power = (spectrum[:, :-1].abs() ** 2).contiguous()
        log_mel = (self._filters @ power).clamp(min=1e-10).log10()
        return cast(Frames, log_mel[:, :num_frames].T.contiguous().half().numpy())


def padded_features(rows: list[Frames], num_frames: int) -> torch.Tensor:
    """float32 [batch, 80, num_frames] as the feature extractor gives them for padded audio."""
    batch = np.full((len(rows), num_frames, NUM_MELS), _FLOOR, dtype=np.float16)
    for index, frames in enumerate(rows):
        batch[index, : len(frames)] = frames[:num_frames]
    features = torch.from_numpy(batch).float()
    highest = features.amax(dim=(1, 2), keepdim=True)
    return ((torch.maximum(features, highest - 8.0) + 4.0) / 4.0).transpose(1, 2)


def write_shard(path: Path, made: Iterable[tuple[object, Frames]]) -> None:
    """Frames one after another to `path`; what is said of them is beside it with the ending .json."""
    temporary = path.with_suffix(".tmp")
    listed: list[object] = []
    with temporary.open("wb") as file:
        for entry, frames in made:
            file.write(frames.tobytes())
            listed.append(entry)
    path.with_suffix(".json").write_bytes(msgspec.json.encode(listed))
    # Last, so that a shard whose frames are there is complete.
    os.replace(temporary, path)


def write_missing(write: Callable[[int], None], paths: Sequence[Path], num_processes: int) -> None:
    """Have the shards written, by their numbers, that are not at their paths; a process each, for espeak-ng
    keeps global state."""
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    missing = [shard for shard, path in enumerate(paths) if not path.exists()]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # "__main__" is passed over by Python 3.11
    with context.Pool(num_processes, maxtasksperchild=1) as pool:
        written = zip(missing, pool.imap(write, missing), strict=True)
        for done, (shard, _) in enumerate(written, 1):
            print(f"shard {shard} written ({done} of {len(missing)})", flush=True)


def read_shard(path: Path, entries: type[list[EntryT]]) -> tuple[list[EntryT], list[Frames]]:
    """What was written, the frames through a memory map."""
    listed = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=entries)
    rows = np.memmap(path, dtype=np.float16, mode="r").reshape(-1, NUM_MELS)
    ends = np.cumsum([entry.num_frames for entry in listed])
    return listed, [rows[end - entry.num_frames : end] for entry, end in zip(listed, ends, strict=True)]


def _shard_path(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.f16"


def _write_shard(shard: int, folder: Path, seed: int) -> None:
    torch.set_num_threads(1)
    studio, log_mel = Studio(seed), LogMel()
    numbers = range(shard * SHARD_SIZE, (shard + 1) * SHARD_SIZE)
    write_shard(_shard_path(folder, shard), (_made(studio.recording(n), log_mel) for n in numbers))


def _made(recording: Recording, log_mel: LogMel) -> tuple[Entry, Frames]:
    frames, spoken = log_mel(recording.audio), recording.sentences
    sentences = [TimedText(s.text, s.words[0].start_s, s.words[-1].end_s) for s in spoken]
    words = [(w.text, w.start_s, w.end_s) for s in spoken for w in s.words]
    return Entry(recording.language, recording.speech_s, len(frames), sentences, words), frames


def generate(folder: Path, seed: int, num_recordings: int, num_processes: int) -> None:
    """Write the shards that are missing."""
    paths = [_shard_path(folder, shard) for shard in range(math.ceil(num_recordings / SHARD_SIZE))]
    write_missing(partial(_write_shard, folder=folder, seed=seed), paths, num_processes)


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's rows: features [batch, 80, frames], decoder inputs and labels [batch, length].

    `letters` are the rows' letters one after another, `num_letters` how many each has,
    `num_frames` how many feature frames of each are not padding.
    """

    features: torch.Tensor
    inputs: torch.Tensor
    labels: torch.Tensor
    letters: torch.Tensor
    num_letters: torch.Tensor
    num_frames: torch.Tensor


class Corpus:
    """The shards in a folder, read through memory maps."""

    def __init__(self, folder: Path, num_recordings: int) -> None:
        self.entries: list[Entry] = []
        self._frames: list[Frames] = []
        for shard in range(math.ceil(num_recordings / SHARD_SIZE)):
            entries, frames = read_shard(_shard_path(folder, shard), list[Entry])
            self.entries += entries
            self._frames += frames

    def __len__(self) -> int:
        return len(self.entries)

    def frames(self, index: int) -> Frames:
        """The raw log-mel frames of a recording, [frames, 80]."""
        return self._frames[index]


class BatchSampler:
    """The batch of every training step: recordings of like length share a batch."""

    def __init__(self, corpus: Corpus, rows: RowMaker, batch_size: int, seed: int) -> None:
        self._corpus = corpus
        self._rows = rows
        self._batch_size = batch_size
        self._seed = seed
        self._steps_per_epoch = len(corpus) // batch_size
        self._epoch = -1
        self._plan: list[list[int]] = []

    def batch(self, step: int, full_window_share: float) -> Batch:
        """The batch of a step; the given share of them is padded to the whole window."""
        rng = random.Random(f"{self._seed}/batch/{step}")
        indices = self._indices(step)
        entries = [self._corpus.entries[i] for i in indices]
        rows = [self._rows.row(e.sentences, e.language, e.speech_s, rng) for e in entries]
        num_frames = WINDOW_FRAMES
        if rng.random() >= full_window_share:
            longest = max(entry.num_frames for entry in entries)
            num_frames = min(WINDOW_FRAMES, max(100, 50 * math.ceil(longest / 50)))
        features = padded_features([self._corpus.frames(i) for i in indices], num_frames)
        _mask_at_random(features, [entry.num_frames for entry in entries], rng)
        length = max(len(row.inputs) for row in rows)
        inputs = torch.full((len(rows), length), self._rows.end)
        labels = torch.full((len(rows), length), -100)
        for index, row in enumerate(rows):
            inputs[index, : len(row.inputs)] = torch.tensor(row.inputs)
            labels[index, : len(row.labels)] = torch.tensor(row.labels)
        return Batch(
            features,
            inputs,
            labels,
            torch.tensor([letter for row in rows for letter in row.letters]),
            torch.tensor([len(row.letters) for row in rows]),
            torch.tensor([entry.num_frames for entry in entries]),
        )

    def _indices(self, step: int) -> list[int]:
        epoch, position = divmod(step, self._steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._plan = epoch, self._planned(epoch)
        return self._plan[position]

    def _planned(self, epoch: int) -> list[list[int]]:
        """The first epoch goes from short to long, which finds the alignment much earlier."""
        rng = random.Random(f"{self._seed}/epoch/{epoch}")
        lengths = [entry.num_frames for entry in self._corpus.entries]
        order = list(range(len(lengths)))
        rng.shuffle(order)
        size = self._batch_size
        pool_size = len(order) if epoch == 0 else 64 * size
        batches: list[list[int]] = []
        for start in range(0, len(order), pool_size):
            pool = sorted(order[start : start + pool_size], key=lengths.__getitem__)
            batches += [pool[i : i + size] for i in range(0, len(pool) - size + 1, size)]
        if epoch > 0:
            rng.shuffle(batches)
        return batches


def _mask_at_random(features: torch.Tensor, num_frames: list[int], rng: random.Random) -> None:
    """Light SpecAugment: up to two bands of mel bins and two short gaps in time, in place."""
    for index, length in enumerate(num_frames):
        for _ in range(2):
            first_mel, first_frame = rng.randint(0, NUM_MELS - 1), rng.randint(0, length)
            features[index, first_mel : first_mel + rng.randint(0, 8)] = 0.0
            features[index, :, first_frame : first_frame + rng.randint(0, 8)] = 0.0
