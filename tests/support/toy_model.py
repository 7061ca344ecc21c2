"""A model of one attention layer that keeps the whole `Model` contract: media rows, three position axes, KV.

Small enough to have its answers computed by a few lines of dense code (`dense_logits`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from sensorium.engine.models.base import EncoderOutput, KvShape, StepBatch
from sensorium.engine.models.info import ModelInfo
from sensorium.kernels.attention.kv_cache import write_kv
from sensorium.kernels.attention.paged_attention import paged_attention
from sensorium.protocols.engine.messages import Features
from torch import Tensor

DIM = 16
POISON = 1e30
"""Features of this value trip the encoder up, though they pass its check."""


@dataclass(frozen=True)
class ToyEncoding:
    """Rows [num_rows, DIM]."""

    rows: Tensor

    @property
    def num_bytes(self) -> int:
        """Bytes held."""
        return self.rows.nbytes

    @property
    def num_rows(self) -> int:
        """Rows it embeds."""
        return self.rows.shape[0]


def _nothing(num: int) -> None:
    pass


@dataclass
class ToyModel:
    """`before_decode` and `before_encode` are called with the number of rows or items, and may raise."""

    vocab_size: int = 32
    rotary_axes: int = 1
    seed: int = 0
    weight_bytes: int = 1000
    max_context: int = 200
    before_decode: Callable[[int], None] = _nothing
    before_encode: Callable[[int], None] = _nothing
    logit_rows: list[int] = field(default_factory=list)
    """How many rows each call of `logits` got."""
    nan_token: int = -1
    """Where this token is fed, hidden states are NaN."""

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        self.embedding = torch.randn(self.vocab_size, DIM, generator=generator)
        self.head = torch.randn(self.vocab_size, DIM, generator=generator)
        self.axes = torch.randn(3, DIM, generator=generator)
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self.kv_shape = KvShape(1, 1, DIM)
        self.info = ModelInfo(
            name="toy",
            folder=Path("toy"),
            family="toy",
            replayable=True,
            vocab_size=self.vocab_size,
            max_context=self.max_context,
        )

    def check_features(self, features: Features) -> None:
        """[rows, DIM]."""
        if len(features.shape) != 2 or features.shape[1] != DIM:
            raise ValueError(f"features of shape {features.shape} are not [rows, {DIM}]")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """Twice the features."""
        self.before_encode(len(items))
        tensors = [torch.frombuffer(bytearray(item.data), dtype=torch.float32) for item in items]
        if any(bool((each == POISON).any()) for each in tensors):
            raise IndexError("index 7 is out of range")
        return [ToyEncoding(2 * each.view(item.shape)) for each, item in zip(tensors, items, strict=True)]

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """One layer of attention over embeddings and positions."""
        rows = batch.token_ids.shape[0]
        self.before_decode(rows)
        assert not batch.cross_attending
        x = self.embedding[batch.token_ids]
        for span in batch.media:
            assert isinstance(span.output, ToyEncoding)
            part = span.output.rows[span.offset : span.offset + span.num_rows]
            x[span.first_row : span.first_row + span.num_rows] = part
        x = self._placed(x, batch.positions)
        x[batch.token_ids == self.nan_token] = torch.nan
        write_kv(cache[0], batch.paged.write_slots, x[:, None], x[:, None])
        return x + paged_attention(x[:, None], cache[0], batch.paged)[:, 0]

    def _placed(self, x: Tensor, positions: Tensor) -> Tensor:
        assert positions.shape == ((3, x.shape[0]) if self.rotary_axes == 3 else (x.shape[0],))
        axes = positions if positions.dim() == 2 else positions.expand(3, -1)
        return x + torch.sin(axes.float().t() @ self.axes / 10)

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, vocab]."""
        self.logit_rows.append(hidden.shape[0])
        return hidden @ self.head.t()

    def dense_logits(
        self, token_ids: Sequence[int], media: Tensor | None = None, media_start: int = 0
    ) -> Tensor:
        """Of a whole sequence at once, without any cache; rows of `media` replace embeddings."""
        x = self.embedding[list(token_ids)]
        if media is not None:
            x[media_start : media_start + media.shape[0]] = media
        positions = torch.arange(len(token_ids))
        x = self._placed(x, positions.expand(3, -1) if self.rotary_axes == 3 else positions)
        scores = (x @ x.t() / DIM**0.5).masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
        logits: Tensor = (x + scores.softmax(-1) @ x) @ self.head.t()
        return logits
