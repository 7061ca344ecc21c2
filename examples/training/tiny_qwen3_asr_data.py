"""Training batches of tiny-qwen3-asr: utterances from the pool of clips, each with its prompt and answer.

Which utterances form the batch of a step depends on seed and step only, not on how often training was
stopped. Steps come in units; the first units draw from the first shards, so that training can begin while
the others are still being spoken, and hold one clip an utterance, which finds the alignment early.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Final

import torch
from checkpoint_files import MESSAGE_END, MESSAGE_START, Encoder
from contexts import drawn_context
from open_text import KINDS, Kind, OpenText
from recall import in_rows, recall_batch
from sensorium.engine.models.qwen3_asr.windows import num_audio_tokens
from speech_grammar import Language, normalised
from spoken_clips import Clip, shard_path
from spoken_utterances import LogMels, Noises, Utterance, joined, without_speech
from tiny_qwen3_asr_model import (
    AUDIO_END,
    AUDIO_PAD,
    AUDIO_START,
    CHUNK_FRAMES,
    LANGUAGE_NAMES,
    TEXT_TAG,
    WINDOW_CHUNKS,
    AsrBatch,
)
from tiny_whisper_data import Frames, read_shard
from tiny_whisper_tokens import LETTERS
from tokenizers import Tokenizer

STEPS_PER_UNIT: Final = 40
FIRST_SHARDS, SHARDS_PER_UNIT = 8, 1
SHORT_UNITS: Final = 2
"""Units at the beginning that join no clips."""
SILENT_SHARE: Final = 0.03
LENGTH_SHARES: Final = (0.55, 0.83)
"""Up to the first draw an utterance is one clip, up to the second it is of middle length, else long."""
MIDDLE_FRAMES, LONG_FRAMES = (300, 1_400), (1_200, 2_900)
SAME_VOICE, SAME_LANGUAGE = 0.5, 0.72
"""Up to these draws the clips of an utterance share their voice, their language; else nothing."""
PAUSE_FRAMES: Final = 60
"""What a pause adds to an utterance's length, about."""
EXPECTED_PADDING: Final = 90
MISLED_SHARE: Final = 0.4
MISLEADING_SHARE: Final = 0.12
"""So many of the tokens behind which an answer is to go on are not what was said, in some of the utterances:
what comes next is then heard and not guessed."""

Place = tuple[int, int]
"""Shard and place in it of a clip."""

_LETTERS: Final = {letter: index for index, letter in enumerate(LETTERS)}
_WAIT_S: Final = 2.0


class Pool:
    """The shards in a folder, as many as a unit may use, and where to find a voice's clips of some kinds."""

    def __init__(self, folder: Path, num_shards: int, kinds: Collection[Kind] = KINDS) -> None:
        self._folder = folder
        self._num_shards = num_shards
        self._kinds = frozenset(kinds)
        self._shards: list[tuple[list[Clip], list[Frames]]] = []

    def load(self, unit: int) -> None:
        """Have the unit's shards, waiting for those that are still being made."""
        wanted = self.shards_of(unit)
        while len(self._shards) < wanted:
            shard = len(self._shards)
            while not (path := shard_path(self._folder, shard)).exists():
                time.sleep(_WAIT_S)
            self._shards.append(read_shard(path, list[Clip]))

    def shards_of(self, unit: int) -> int:
        """How many shards a unit draws from."""
        return min(self._num_shards, FIRST_SHARDS + unit * SHARDS_PER_UNIT)

    def places(self, unit: int) -> dict[str, list[Place]]:
        """The clips of every voice and of every language that the unit may use."""
        groups: dict[str, list[Place]] = defaultdict(list)
        for number, (clips, _) in enumerate(self._shards[: self.shards_of(unit)]):
            for index, clip in enumerate(clips):
                if clip.kind not in self._kinds:
                    continue
                groups[clip.voice].append((number, index))
                groups[f"language {clip.language}"].append((number, index))
        return groups

    def clip(self, place: Place) -> tuple[Clip, Frames]:
        """A clip and its frames."""
        clips, frames = self._shards[place[0]]
        return clips[place[1]], frames[place[1]]


class Batches:
    """The batch of every step: utterances of like length share one."""

    def __init__(
        self,
        pool: Pool,
        texts: dict[Language, OpenText],
        tokenizer: Tokenizer,
        *,
        seed: int,
        frames_per_batch: int,
        misled_share: float = MISLED_SHARE,
    ) -> None:
        self._pool = pool
        self._misled_share = misled_share
        self._texts = texts
        encoder = Encoder(tokenizer)
        self._encoded, self._ids = encoder.encoded, encoder.ids
        self._seed = seed
        self._budget = frames_per_batch
        self._noises = Noises(seed)
        self._text_tokens = sorted(tokenizer.get_vocab(with_added_tokens=False).values())
        self._unit = -1
        self._plan: list[list[list[Place]]] = []

    def batch(self, step: int) -> AsrBatch:
        """The batch of a step; depends on seed and step alone."""
        unit, index = divmod(step, STEPS_PER_UNIT)
        if unit != self._unit:
            self._pool.load(unit)
            self._unit, self._plan = unit, self._planned(unit)
        rng = random.Random(f"{self._seed}/asr batch/{step}")
        utterances = [
            joined([self._pool.clip(place) for place in places], self._noises, rng)
            if places
            else without_speech(self._noises, rng)
            for places in self._plan[index]
        ]
        return self.collate(utterances, rng)

    def _planned(self, unit: int) -> list[list[list[Place]]]:
        rng = random.Random(f"{self._seed}/asr unit/{unit}")
        groups = self._pool.places(unit)
        everything = [
            place for name in sorted(groups) if name.startswith("language") for place in groups[name]
        ]
        utterances: list[tuple[int, list[Place]]] = []
        total = 0
        while total < STEPS_PER_UNIT * self._budget:
            places = [] if rng.random() < SILENT_SHARE else self._drawn(groups, everything, unit, rng)
            frames = sum(self._pool.clip(place)[0].num_frames + PAUSE_FRAMES for place in places) or 400
            utterances.append((frames + EXPECTED_PADDING, places))
            total += frames + EXPECTED_PADDING
        utterances.sort(key=lambda each: each[0])
        batches: list[list[list[Place]]] = [[] for _ in range(STEPS_PER_UNIT)]
        done = 0
        for frames, places in utterances:
            batches[min(STEPS_PER_UNIT - 1, done * STEPS_PER_UNIT // total)].append(places)
            done += frames
        # A unit has so many short utterances that none of its batches is empty.
        rng.shuffle(batches)
        return batches

    def _drawn(
        self, groups: dict[str, list[Place]], everything: list[Place], unit: int, rng: random.Random
    ) -> list[Place]:
        places = [rng.choice(everything)]
        draw = rng.random()
        if draw < LENGTH_SHARES[0] or unit < SHORT_UNITS:
            return places
        wanted = rng.randint(*(MIDDLE_FRAMES if draw < LENGTH_SHARES[1] else LONG_FRAMES))
        clip = self._pool.clip(places[0])[0]
        draw = rng.random()
        candidates = everything
        if draw < SAME_LANGUAGE:
            candidates = groups[clip.voice if draw < SAME_VOICE else f"language {clip.language}"]
        length = clip.num_frames
        while length < wanted:
            places.append(rng.choice(candidates))
            length += self._pool.clip(places[-1])[0].num_frames + PAUSE_FRAMES
        return places

    def collate(self, utterances: list[Utterance], rng: random.Random) -> AsrBatch:
        """The tensors of one step, with a drawn context for each utterance."""
        chunks: list[torch.Tensor] = []
        window_chunks: list[int] = []
        window_rows: list[int] = []
        utterance_windows: list[int] = []
        rows = []
        letters = []
        for utterance in utterances:
            features = _features(utterance.frames, rng)
            num_frames = features.shape[1]
            num_chunks = -(-num_frames // CHUNK_FRAMES)
            padded = torch.zeros(features.shape[0], num_chunks * CHUNK_FRAMES)
            padded[:, :num_frames] = features
            chunks += padded.view(features.shape[0], num_chunks, CHUNK_FRAMES).unbind(1)
            windows = range(0, num_chunks, WINDOW_CHUNKS)
            utterance_windows.append(len(windows))
            for first in windows:
                window_chunks.append(min(WINDOW_CHUNKS, num_chunks - first))
                left = num_frames - first * CHUNK_FRAMES
                window_rows.append(num_audio_tokens(min(left, WINDOW_CHUNKS * CHUNK_FRAMES)))
            rows.append(self._row(utterance, num_audio_tokens(num_frames), rng))
            letters.append([_LETTERS[letter] for letter in normalised(utterance.text)])
        return AsrBatch(
            torch.stack(chunks),
            window_chunks,
            window_rows,
            utterance_windows,
            in_rows([inputs for inputs, _, _ in rows], 0),
            in_rows([labels for _, labels, _ in rows], -100),
            in_rows([audio for _, _, audio in rows], False),
            torch.tensor([letter for row in letters for letter in row]),
            torch.tensor([len(row) for row in letters]),
            recall_batch(self._texts, self._around, self._encoded, rng),
        )

    def _row(
        self, utterance: Utterance, num_rows: int, rng: random.Random
    ) -> tuple[list[int], list[int], list[bool]]:
        language = utterance.language
        context = drawn_context(utterance.text, self._texts[language or "en"], rng)
        head, middle = self._around(context, language)
        pad = self._ids(AUDIO_PAD) * num_rows
        text = self._encoded(utterance.text)
        answer = [*self._header(language), *text, *self._ids(MESSAGE_END)]
        # inputs lack the answer's last token, labels are what follows each input.
        inputs = [*head, *pad, *middle, *self._misleading(text, rng)]
        labels = [-100] * (len(inputs) - len(answer)) + answer
        audio = [False] * len(head) + [True] * len(pad) + [False] * (len(inputs) - len(head) - len(pad))
        return inputs, labels, audio

    def _around(self, context: str, language: Language | None) -> tuple[list[int], list[int]]:
        """What stands before the audio and between it and the text."""
        head = [*self._ids(MESSAGE_START, "system\n"), *self._encoded(context)]
        head += self._ids(MESSAGE_END, "\n", MESSAGE_START, "user\n", AUDIO_START)
        middle = self._ids(AUDIO_END, MESSAGE_END, "\n", MESSAGE_START, "assistant\n")
        return head, [*middle, *self._header(language)]

    def _header(self, language: Language | None) -> list[int]:
        return self._ids(f"language {LANGUAGE_NAMES[language] if language else 'None'}", TEXT_TAG)

    def _misleading(self, text: list[int], rng: random.Random) -> list[int]:
        """The tokens of a text, in some texts with a few others among them."""
        if rng.random() >= self._misled_share:
            return text
        return [rng.choice(self._text_tokens) if rng.random() < MISLEADING_SHARE else token for token in text]


def _features(raw: LogMels, rng: random.Random) -> torch.Tensor:
    """float32 [mels, frames] as the feature extractor gives them, with light masking."""
    frames = torch.from_numpy(raw)
    features = ((torch.maximum(frames, frames.amax() - 8.0) + 4.0) / 4.0).t().contiguous()
    for _ in range(2):
        first = rng.randint(0, features.shape[0] - 1)
        features[first : first + rng.randint(0, 8)] = 0.0
    for _ in range(1 + features.shape[1] // 400):
        start = rng.randint(0, features.shape[1])
        features[:, start : start + rng.randint(0, 8)] = 0.0
    return features
