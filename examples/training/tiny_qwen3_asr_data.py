"""Training utterances of tiny-qwen3-asr: one to several stored recordings in a row, and batches of them.

The recordings are `tiny_whisper_data.py`'s; joined, they span several of the tower's windows. Which ones form
the batch of a step depends on seed and step only.
"""

import random

import numpy as np
import tiny_whisper_data as data
import torch
from speech_grammar import LANGUAGES, load_grammar, normalised
from tiny_qwen3_asr_model import (
    AUDIO_END,
    AUDIO_PAD,
    AUDIO_START,
    CHUNK_FRAMES,
    CHUNK_ROWS,
    LANGUAGE_NAMES,
    MESSAGE_END,
    MESSAGE_START,
    TEXT_TAG,
    WINDOW_CHUNKS,
    AsrBatch,
)
from tiny_whisper_tokens import LETTERS
from tokenizers import Tokenizer

CONTEXT_SHARE = 0.1
"""Rows whose system message holds a sentence that has nothing to do with the audio."""
JOINED_SHARES = (0.55, 0.8, 0.93)
"""Up to these draws a row is one, two, three recordings; else four or five."""
PAUSE_FRAMES = (5, 120)
Utterance = list[int]
"""Indices of the recordings that follow each other."""


def rows_of(num_frames: int) -> int:
    """Rows the tower gives for so many frames."""
    whole, rest = divmod(num_frames, CHUNK_FRAMES)
    for _ in range(3):
        rest = (rest + 1) // 2
    return whole * CHUNK_ROWS + rest


class Batches:
    """The batch of every step: utterances of like length share one."""

    def __init__(
        self, corpus: data.Corpus, tokenizer: Tokenizer, *, seed: int, frames_per_batch: int
    ) -> None:
        self._corpus = corpus
        self._tokenizer = tokenizer
        self._seed = seed
        self._budget = frames_per_batch
        self._cache: dict[str, list[int]] = {}
        self._plans: list[list[list[Utterance]]] = []
        self._first_steps: list[int] = []

    def batch(self, step: int) -> AsrBatch:
        """The batch of a step; depends on seed and step alone."""
        while not self._plans or step >= self._first_steps[-1] + len(self._plans[-1]):
            self._first_steps.append(self._first_steps[-1] + len(self._plans[-1]) if self._plans else 0)
            self._plans.append(self._planned(len(self._plans)))
        epoch = max(i for i, first in enumerate(self._first_steps) if first <= step)
        rng = random.Random(f"{self._seed}/asr batch/{step}")
        return self._collate(self._plans[epoch][step - self._first_steps[epoch]], rng)

    def _planned(self, epoch: int) -> list[list[Utterance]]:
        rng = random.Random(f"{self._seed}/asr epoch/{epoch}")
        entries = self._corpus.entries
        utterances: list[Utterance] = []
        for language in LANGUAGES:
            order = [i for i, entry in enumerate(entries) if entry.language == language]
            rng.shuffle(order)
            while order:
                draw = rng.random()
                wanted = 1 + sum(draw > share for share in JOINED_SHARES) if epoch > 0 else 1
                if wanted == 4:
                    wanted += rng.randint(0, 1)
                part, order = order[:wanted], order[wanted:]
                # What was cut off in mid-word can only come last.
                part.sort(key=lambda index: not self._is_whole(index))
                whole = [index for index in part if self._is_whole(index)]
                broken = [index for index in part if not self._is_whole(index)]
                utterances.append(whole + broken[:1])
                utterances += [[index] for index in broken[1:]]
        lengths = [sum(entries[i].num_frames + 60 for i in part) for part in utterances]
        order = list(range(len(utterances)))
        rng.shuffle(order)
        pool_size = len(order) if epoch == 0 else 2048
        batches: list[list[Utterance]] = []
        for start in range(0, len(order), pool_size):
            pool = sorted(order[start : start + pool_size], key=lengths.__getitem__)
            batch: list[Utterance] = []
            frames = 0
            for index in pool:
                if batch and frames + lengths[index] > self._budget:
                    batches.append(batch)
                    batch, frames = [], 0
                batch.append(utterances[index])
                frames += lengths[index]
            batches.append(batch)
        if epoch > 0:
            rng.shuffle(batches)
        return batches

    def _is_whole(self, index: int) -> bool:
        sentences = self._corpus.entries[index].sentences
        return not sentences or sentences[-1].text[-1] in ".?!"

    def _text(self, text: str) -> list[int]:
        if text not in self._cache:
            self._cache[text] = list(self._tokenizer.encode(text, add_special_tokens=False).ids)
        return self._cache[text]

    def _ids(self, *parts: str) -> list[int]:
        return [token for part in parts for token in self._text(part)]

    def _collate(self, utterances: list[list[int]], rng: random.Random) -> AsrBatch:
        chunks: list[torch.Tensor] = []
        window_chunks: list[int] = []
        window_rows: list[int] = []
        utterance_windows: list[int] = []
        inputs, labels, audio, letters = [], [], [], []
        for part in utterances:
            features = self._features(part, rng)
            num_frames = features.shape[1]
            num_chunks = -(-num_frames // CHUNK_FRAMES)
            padded = torch.zeros(features.shape[0], num_chunks * CHUNK_FRAMES)
            padded[:, :num_frames] = features
            chunks += padded.view(features.shape[0], num_chunks, CHUNK_FRAMES).unbind(1)
            windows = range(0, num_chunks, WINDOW_CHUNKS)
            utterance_windows.append(len(windows))
            for first in windows:
                window_chunks.append(min(WINDOW_CHUNKS, num_chunks - first))
                window_rows.append(
                    rows_of(min(num_frames - first * CHUNK_FRAMES, WINDOW_CHUNKS * CHUNK_FRAMES))
                )
            row_inputs, row_labels, row_audio = self._row(part, rows_of(num_frames), rng)
            inputs.append(row_inputs)
            labels.append(row_labels)
            audio.append(row_audio)
            spoken = normalised(" ".join(self._sentences(part)))
            letters.append([LETTERS.index(letter) for letter in spoken])
        longest = max(len(row) for row in inputs)
        return AsrBatch(
            torch.stack(chunks),
            window_chunks,
            window_rows,
            utterance_windows,
            torch.tensor([row + [0] * (longest - len(row)) for row in inputs]),
            torch.tensor([row + [-100] * (longest - len(row)) for row in labels]),
            torch.tensor([row + [False] * (longest - len(row)) for row in audio]),
            torch.tensor([letter for row in letters for letter in row]),
            torch.tensor([len(row) for row in letters]),
        )

    def _sentences(self, part: list[int]) -> list[str]:
        return [sentence.text for index in part for sentence in self._corpus.entries[index].sentences]

    def _row(
        self, part: list[int], num_rows: int, rng: random.Random
    ) -> tuple[list[int], list[int], list[bool]]:
        language = self._corpus.entries[part[0]].language
        context = ""
        if rng.random() < CONTEXT_SHARE:
            context = load_grammar(language).training_sentence(rng)
        sentences = self._sentences(part)
        name = LANGUAGE_NAMES[language] if sentences else "None"
        head = self._ids(MESSAGE_START, "system\n", *([context] if context else []), MESSAGE_END, "\n")
        head += self._ids(MESSAGE_START, "user\n", AUDIO_START)
        pad = self._ids(AUDIO_PAD) * num_rows
        middle = self._ids(AUDIO_END, MESSAGE_END, "\n", MESSAGE_START, "assistant\n")
        answer = self._ids(f"language {name}", TEXT_TAG)
        answer += self._tokenizer.encode(" ".join(sentences), add_special_tokens=False).ids
        answer += self._ids(MESSAGE_END)
        inputs = [*head, *pad, *middle, *answer[:-1]]
        forced = len(head) + len(pad) + len(middle) - 1
        labels = [-100] * forced + answer
        audio = [False] * len(head) + [True] * len(pad) + [False] * (len(inputs) - len(head) - len(pad))
        return inputs, labels, audio

    def _features(self, part: list[int], rng: random.Random) -> torch.Tensor:
        """float32 [mels, frames] as the feature extractor gives them, with light masking."""
        pieces: list[torch.Tensor] = []
        for index in part:
            if pieces:
                quiet = pieces[-1][-1:] - 0.5 * rng.random()
                pieces.append(quiet.expand(rng.randint(*PAUSE_FRAMES), -1))
            pieces.append(torch.from_numpy(np.array(self._corpus.frames(index))).float())
        raw = torch.cat(pieces)
        if rng.random() < 0.3:
            raw = raw[: len(raw) - rng.randint(0, 3)]
        features = ((torch.maximum(raw, raw.amax() - 8.0) + 4.0) / 4.0).t().contiguous()
        for _ in range(2):
            first = rng.randint(0, features.shape[0] - 1)
            features[first : first + rng.randint(0, 8)] = 0.0
            start = rng.randint(0, features.shape[1])
            features[:, start : start + rng.randint(0, 8)] = 0.0
        return features
