"""A pool of spoken phrases on disk, made once: spectrograms with the times of their words.

A clip is one phrase of `open_text.py` by one of espeak-ng's voices, without silence around it; a third
stand in a room. Noise, level, tempo and timbre are `spoken_utterances.py`'s, new in every utterance. Seed
and number determine a clip; shards of them are written by as many processes as there are processors.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec
import numpy as np
import torch
from open_text import SPOKEN_LETTERS, Kind, OpenText, drawn_kind, open_texts
from speech_grammar import LANGUAGES, Language
from speech_synthesis import VOICES, Audio, Speaker, Word, reverberated
from tiny_whisper_data import SHARD_SIZE, Frames, feature_extractor, write_missing, write_shard
from word_lists import load_words

ROOM_SHARE: Final = 0.3
LEVEL: Final = 0.5
"""Peak of every clip."""
_HOP, _FFT = 160, 400


class Clip(msgspec.Struct, frozen=True):
    """What a shard says about one clip; `words` are (text, start, end) in seconds."""

    language: Language
    voice: str
    kind: Kind
    num_frames: int
    words: list[tuple[str, float, float]]


class LogMel:
    """Raw log10 mel frames of audio with silence before and behind."""

    def __init__(self) -> None:
        filters = np.asarray(feature_extractor().mel_filters, dtype=np.float32)
        self._filters = torch.from_numpy(filters.T.copy())
        self._window = torch.hann_window(_FFT)

    def __call__(self, audio: Audio) -> Frames:
        """float16 [frames, 80]; frame i is centred at i · 10 ms."""
        num_frames = 1 + len(audio) // _HOP
        samples = torch.zeros((num_frames - 1) * _HOP + _FFT)
        part = torch.from_numpy(audio)[: len(samples) - _FFT // 2]
        samples[_FFT // 2 : _FFT // 2 + len(part)] = part
        spectrum = torch.stft(samples, _FFT, _HOP, window=self._window, center=False, return_complex=True)
        power = spectrum.abs() ** 2
        log_mel = (self._filters @ power).clamp(min=1e-10).log10()
        return cast(Frames, log_mel.T.contiguous().half().numpy())


def spoken(
    text: str, kind: Kind, language: Language, voice: str, rng: random.Random, speaker: Speaker
) -> tuple[Audio, list[Word]]:
    """The phrase at a random pace and pitch, and the times of its written words."""
    names = SPOKEN_LETTERS[language] if kind == "spelled" else {}
    written = text.split()
    spoken_forms = [names.get(word.rstrip("."), word) for word in written]
    rate, pitch, spread = rng.randint(120, 215), rng.randint(20, 80), rng.randint(25, 75)
    audio, words = speaker.speak(" ".join(spoken_forms), voice, rate, pitch, spread)
    timed: list[Word] = []
    for shown, name in zip(written, spoken_forms, strict=True):
        first = sum(len(each.split()) for each in spoken_forms[: len(timed)])
        last = first + len(name.split()) - 1
        timed.append(Word(shown, words[first].start_s, words[last].end_s))
    return audio, timed


class ClipMaker:
    """Makes any clip of a seed; espeak-ng holds global state, so one in a process."""

    def __init__(self, seed: int, texts: dict[Language, OpenText]) -> None:
        self._seed = seed
        self._texts = texts
        self._speaker = Speaker()
        self._log_mel = LogMel()

    def clip(self, index: int) -> tuple[Clip, Frames]:
        """Training clip number `index`."""
        rng = random.Random(f"{self._seed}/clip/{index}")
        language, kind = rng.choice(LANGUAGES), drawn_kind(rng)
        voice = rng.choice(VOICES[language])
        text = self._texts[language].phrase(kind, rng)
        audio, words = spoken(text, kind, language, voice, rng, self._speaker)
        if rng.random() < ROOM_SHARE:
            audio = reverberated(audio, rng)
        frames = self._log_mel(audio * np.float32(LEVEL / max(1e-6, float(np.abs(audio).max()))))
        timed = [(word.text, word.start_s, word.end_s) for word in words]
        return Clip(language, voice, kind, len(frames), timed), frames


def shard_path(folder: Path, shard: int) -> Path:
    """Where a shard's frames are; what they are is beside them with the ending .json."""
    return folder / f"clips-{shard:04d}.f16"


def _write_shard(shard: int, folder: Path, lists: Path, seed: int) -> None:
    torch.set_num_threads(1)
    maker = ClipMaker(seed, open_texts(load_words(lists)))
    numbers = range(shard * SHARD_SIZE, (shard + 1) * SHARD_SIZE)
    write_shard(shard_path(folder, shard), map(maker.clip, numbers))


def generate(folder: Path, lists: Path, seed: int, num_shards: int, num_processes: int) -> None:
    """Write the shards that are missing."""
    paths = [shard_path(folder, shard) for shard in range(num_shards)]
    write_missing(partial(_write_shard, folder=folder, lists=lists, seed=seed), paths, num_processes)
