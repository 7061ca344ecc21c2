"""Pool: one vector of a prompt's hidden states, however many steps its prompt takes.

The mean adds up in float32 over chunks. Dimensions are cut before the vector is normalized, as in
`sentence_transformers`' `truncate_dim` with a `Normalize` module behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ....protocols.engine.messages import Pool, Pooled, RequestId, TaskFailed, TokensSampled
from ...models.base import BidirectionalModel, Model, NormingModel
from ..sampler import NOT_FINITE
from ..step import FedSequence
from .base import Rows, SequenceTask

_MAX_PADDED: Final = 4096
"""Tokens of one forward of whole prompts, padding included, if a single one is not longer."""


class PoolTask(SequenceTask[Tensor | None]):
    """See `Pool`."""

    def __init__(self, model: Model) -> None:
        self._norm = model.final_norm if isinstance(model, NormingModel) else None

    def num_wanted(self, fed: FedSequence, /) -> int:
        """See `SequenceTask`."""
        return 1 if _task(fed).pooling == "last" else len(fed.token_ids)

    def compute(self, members: Sequence[Rows], hidden: Tensor, /) -> list[Tensor | None]:
        """What each adds to its sequence's vector: float32 [width]."""
        return [self._part(each, hidden[each.first : each.end]) for each in members]

    def answer(self, fed: FedSequence, result: Tensor | None, /) -> Pooled | TokensSampled:
        """See `SequenceTask`."""
        state = fed.state
        if result is not None:
            state.pooled = result if state.pooled is None else state.pooled + result
        if not fed.step.answers:
            return TokensSampled(state.request_id)
        state.finished = True
        assert state.pooled is not None, "the last chunk or one before it had rows"
        total = state.pooled / fed.end if _task(fed).pooling == "mean" else state.pooled
        values = _values(_task(fed), total)
        if values is None:
            return TokensSampled(state.request_id, error=NOT_FINITE, fault="not_finite")
        return Pooled(state.request_id, values)

    def _part(self, rows: Rows, hidden: Tensor) -> Tensor | None:
        match _task(rows.fed).pooling:
            case "mean":
                return self._normed(hidden).sum(0)
            case "cls":
                return self._normed(hidden[:1])[0] if rows.fed.step.start == 0 else None
            case "last":
                return self._normed(hidden[-1:])[0] if rows.fed.step.answers else None

    def _normed(self, hidden: Tensor) -> Tensor:
        return (hidden if self._norm is None else self._norm(hidden)).float()


@dataclass(frozen=True, slots=True)
class WholePrompt:
    """A prompt that is run as a whole, and what is made of its hidden states."""

    request_id: RequestId
    token_ids: tuple[int, ...]
    pool: Pool


def pool_whole(model: BidirectionalModel, prompts: Sequence[WholePrompt]) -> Iterator[Pooled | TaskFailed]:
    """The vectors of `prompts`, in any order; neighbours in length share a forward."""
    batch: list[WholePrompt] = []
    for each in sorted(prompts, key=lambda each: len(each.token_ids), reverse=True):
        if batch and (len(batch) + 1) * len(batch[0].token_ids) > _MAX_PADDED:
            yield from _pool_batch(model, batch)
            batch = []
        batch.append(each)
    if batch:
        yield from _pool_batch(model, batch)


def _pool_batch(model: BidirectionalModel, batch: Sequence[WholePrompt]) -> Iterator[Pooled | TaskFailed]:
    hidden = model.hidden_states([each.token_ids for each in batch])
    for each, rows in zip(batch, hidden, strict=True):
        own = rows[: len(each.token_ids)]
        match each.pool.pooling:
            case "mean":
                vector = own.float().mean(0)
            case "cls":
                vector = own[0].float()
            case "last":
                vector = own[-1].float()
        values = _values(each.pool, vector)
        if values is None:
            yield TaskFailed(each.request_id, NOT_FINITE, "not_finite")
        else:
            yield Pooled(each.request_id, values)


def _values(pool: Pool, vector: Tensor) -> bytes | None:
    """The bytes of the vector that is answered; None if it has values that are not finite."""
    kept = vector[: pool.num_dimensions]
    if pool.is_normalized:
        kept = torch.nn.functional.normalize(kept, dim=0)
    if not bool(kept.isfinite().all()):
        return None
    return kept.cpu().numpy().astype("<f4").tobytes()


def _task(fed: FedSequence) -> Pool:
    assert isinstance(fed.state.task, Pool)
    return fed.state.task
