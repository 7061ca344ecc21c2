"""Where the mixers of one model keep the states of sequences: one row of numbers a slot, all layers in it.

So a snapshot is one copy. The numbers are float32 whatever the model computes in, because a state is added to
for as long as its sequence goes on. Which slot is whose: `engine/planning/kv/states.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from ....kernels.recurrence import SlotStates, can_run_in_slots


class Place(NamedTuple):
    """A state's numbers in each slot, from `start` on, in a shape."""

    start: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Of one slot."""
        return self.size * torch.float32.itemsize


class MixerStates:
    """The states of one model, and which of them the step being run reads and writes."""

    def __init__(self) -> None:
        self.num_numbers = 0
        """Of one slot."""
        self.lengths: tuple[int, ...] = ()
        """Rows of each sequence of the step."""
        self._numbers = torch.empty(0, 0)
        self._slots = torch.empty(0, dtype=torch.int64)
        self._starts = torch.empty(0, dtype=torch.int32)

    def __bool__(self) -> bool:
        return self.num_numbers > 0

    def reserve(self, *shape: int) -> Place:
        """Room for one more state. Before `allocate`."""
        place = Place(self.num_numbers, shape)
        self.num_numbers += place.size
        return place

    def allocate(self, num_slots: int, device: torch.device) -> Tensor:
        """The numbers of so many slots, [slots, numbers], all zero: the state in front of a sequence."""
        self._numbers = torch.zeros(num_slots, self.num_numbers, device=device)
        return self._numbers

    @contextmanager
    def step(self, slots: Tensor, lengths: Sequence[int]) -> Iterator[None]:
        """While it lasts, `read` and `write` are of these slots, int64 [sequences]."""
        self._slots, self.lengths = slots, tuple(lengths)
        self._starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        try:
            yield
        finally:
            self.lengths = ()

    def read(self, place: Place) -> Tensor:
        """[sequences, …] of the step's sequences, a copy."""
        assert self.lengths, "states are read within a step"
        return self._of_layer(place).index_select(0, self._slots).view(-1, *place.shape)

    def in_slots(self, place: Place) -> SlotStates | None:
        """The same where it lies, for kernels that change it there; None where they cannot."""
        assert self.lengths, "states are read within a step"
        if not can_run_in_slots(self._numbers):
            return None
        return SlotStates(self._numbers, place.start, self._slots, self._starts)

    def write(self, place: Place, states: Tensor) -> None:
        """Replace what `read` gave."""
        self._of_layer(place).index_copy_(0, self._slots, states.reshape(-1, place.size))

    def _of_layer(self, place: Place) -> Tensor:
        return self._numbers[:, place.start : place.start + place.size]
