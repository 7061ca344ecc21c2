"""Prefill: keys and values are all that is wanted."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ....protocols.engine.messages import TokensSampled
from ..step import FedSequence
from .base import Rows, SequenceTask


class PrefillTask(SequenceTask[None]):
    """See `Prefill`."""

    def num_wanted(self, _: FedSequence, /) -> int:
        """The last row tells whether the keys and values are numbers."""
        return 1

    def compute(self, members: Sequence[Rows], _: Tensor, /) -> list[None]:
        """See `SequenceTask`."""
        return [None] * len(members)

    def answer(self, fed: FedSequence, _: None, /) -> TokensSampled:
        """See `SequenceTask`."""
        fed.state.finished = fed.step.answers
        return TokensSampled(fed.state.request_id, finish_reason="stop" if fed.step.answers else None)
