"""A small model that keeps the whole `TransducingModel` contract, with real tensors.

Features have one bin. A row is two frames, mixed into a decayed sum; a predictor state follows the tokens.
Each chunk is computed by itself, so that batches change not even the last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from sensorium.engine.models.base import (
    ChunkBatch,
    Emitted,
    EncoderOutput,
    KvShape,
    Listened,
    StepBatch,
)
from sensorium.engine.models.info import ModelInfo
from sensorium.protocols.engine.messages import Features, InputChunk, Transduce
from support.fake_transducer import FRAMES_PER_ROW, chunk_of
from torch import Tensor

DIM: Final = 12
VOCAB_SIZE: Final = 20
BLANK: Final = 0
MAX_SYMBOLS: Final = 3
"""Tokens of one row."""
POISON: Final = 1e30
"""A frame of this value trips the model up, though it passes the check."""


def _nothing(num: int) -> None:
    pass


@dataclass
class ToyTransducer:
    """`before_listen` and `before_emit` are called with the number of chunks, and may raise."""

    seed: int = 0
    before_listen: Callable[[int], None] = _nothing
    before_emit: Callable[[int], None] = _nothing
    num_listened: int = 0
    """Chunks that were listened to, those that failed later included."""

    rotary_axes = 1
    weight_bytes = 1000

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        self.mix = torch.randn(FRAMES_PER_ROW, DIM, generator=generator)
        self.head = torch.randn(DIM, VOCAB_SIZE, generator=generator)
        self.head[:, BLANK] = 0
        self.embedding = torch.randn(VOCAB_SIZE, DIM, generator=generator)
        self.conditions = torch.randn(4, DIM, generator=generator)
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self.kv_shape = KvShape(0, 1, 1)
        self.info = ModelInfo(
            name="toy transducer",
            folder=Path("toy"),
            family="toy",
            vocab_size=VOCAB_SIZE,
            max_context=1,
            input_frames_per_row=FRAMES_PER_ROW,
        )

    def make_states(self, num_slots: int) -> Sequence[Tensor]:
        """A frame without a partner and whether there is one, the sum of rows, the predictor; rubbish until
        they are cleared."""
        self.tails = torch.full((num_slots, 2), 1e6)
        self.sums = torch.full((num_slots, DIM), 1e6)
        self.predictors = torch.full((num_slots, DIM), 1e6)
        return (self.tails, self.sums, self.predictors)

    def check_chunk(self, task: Transduce, chunk: InputChunk, *, is_first: bool) -> None:
        """Of one bin and four conditions; the first chunk has a frame at least."""
        if len(chunk.features.shape) != 2 or chunk.features.shape[0] != 1:
            raise ValueError(f"features of shape {chunk.features.shape} are not [1, frames]")
        if not 0 <= task.condition < len(self.conditions):
            raise ValueError(f"condition is {task.condition}; allowed: 0 to {len(self.conditions) - 1}")

    def example_chunk(self) -> tuple[Transduce, InputChunk]:
        """Four frames."""
        return Transduce(), chunk_of((0.0,) * 4)

    def listen(self, batch: ChunkBatch) -> Listened:
        """Rows [rows, DIM]."""
        self.num_listened += len(batch.chunks)
        self.before_listen(len(batch.chunks))
        rows: list[Tensor] = []
        counts: list[int] = []
        update: list[tuple[Tensor, Tensor]] = []
        for chunk, slot in zip(batch.chunks, batch.slots.tolist(), strict=True):
            tail, has_tail = self.tails[slot].tolist()
            assert not chunk.is_first or not (has_tail or self.sums[slot].any()), "its slot is not zero"
            frames = [*([tail] if has_tail else []), *chunk.features[0, : chunk.num_valid].tolist()]
            if POISON in torch.tensor(frames):
                raise IndexError("index 7 is out of range")
            num_whole = len(frames) if chunk.is_last else len(frames) // FRAMES_PER_ROW * FRAMES_PER_ROW
            total = self.sums[slot]
            found = []
            for start in range(0, num_whole, FRAMES_PER_ROW):
                pair = torch.tensor(frames[start : min(start + FRAMES_PER_ROW, num_whole)])
                total = 0.5 * total + torch.sin(pair) @ self.mix[: len(pair)]
                found.append(total + (1 + chunk.task.lookahead) * self.conditions[chunk.task.condition])
            assert chunk.num_rows_before >= 0
            rows += found
            counts.append(len(found))
            rest = frames[num_whole:]
            update.append((torch.tensor([*rest, 1.0] if rest else [0.0, 0.0]), total))
        return Listened(torch.stack(rows) if rows else torch.zeros(0, DIM), tuple(counts), update)

    def emit(self, listened: Listened, batch: ChunkBatch) -> Emitted:
        """Greedy: a row ends with the blank, or after `MAX_SYMBOLS` tokens."""
        self.before_emit(len(batch.chunks))
        parts: list[Any] = []
        update: list[Tensor] = []
        start = 0
        for chunk, slot, count in zip(batch.chunks, batch.slots.tolist(), listened.num_rows, strict=True):
            predictor = self.predictors[slot]
            tokens: list[int] = []
            places: list[int] = []
            logprobs: list[float] = []
            for row in range(count):
                for _ in range(MAX_SYMBOLS):
                    scores = ((listened.rows[start + row] + predictor) @ self.head).log_softmax(-1)
                    token = int(scores.argmax())
                    if token == BLANK:
                        break
                    tokens.append(token)
                    places.append(row)
                    logprobs.append(float(scores[token]))
                    predictor = torch.tanh(0.5 * predictor + self.embedding[token])
            start += count
            parts.append((tuple(tokens), tuple(places), tuple(logprobs) if chunk.task.logprobs else ()))
            update.append(predictor)
        token_ids, rows, found_logprobs = zip(*parts, strict=True)
        return Emitted(token_ids, rows, found_logprobs, update)

    def commit(self, batch: ChunkBatch, listened: Listened, emitted: Emitted) -> None:
        """Write what both computed."""
        for slot, (tail, total), predictor in zip(
            batch.slots.tolist(), listened.update, emitted.update, strict=True
        ):
            self.tails[slot], self.sums[slot], self.predictors[slot] = tail, total, predictor

    def check_features(self, features: Features) -> None:
        """See `engine/models/base.py`."""
        raise ValueError("the toy transducer takes no items")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """There is nothing to encode."""
        raise AssertionError("the toy transducer takes no items")

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """It has no sequences."""
        raise AssertionError("the toy transducer has no sequences")

    def logits(self, hidden: Tensor) -> Tensor:
        """It has no sequences."""
        raise AssertionError("the toy transducer has no sequences")
