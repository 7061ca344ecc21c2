"""What the runner asks of a task whose prompt is fed as a sequence. A new task is a file here and a line in
`engine/execution/runner.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from ...planning.plan import SequenceOutcome
from ..step import FedSequence

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the rows of one sequence begin in the hidden states of a step."""

    fed: FedSequence
    first: int

    @property
    def end(self) -> int:
        """Behind its last row."""
        return self.first + len(self.fed.token_ids)


class SequenceTask(Protocol[ResultT]):
    """One task, for all sequences of a step that have it."""

    def num_wanted(self, fed: FedSequence, /) -> int:
        """How many of the fed rows, the last ones, matter for more than their keys and values; at least 1."""

    def compute(self, members: Sequence[Rows], hidden: Tensor, /) -> list[ResultT]:
        """Whatever is to be made of `hidden` [rows, width], in the members' order. It may run out of memory
        and be called again with fewer, so it changes no sequence."""

    def answer(self, fed: FedSequence, result: ResultT, /) -> SequenceOutcome:
        """Tell the sequence what was computed, and the scheduler."""
