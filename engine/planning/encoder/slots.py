"""The scheduler's view of encodings: encodes to plan on demand, slots that are filled, slots to free.

What content is in a slot and who holds it is the ledger's business (`engine/planning/encoder/cache.py`); here
a slot is only waiting for its encode, filled (its encode is planned, so this and later plans may use it) or
failed. Where encodes run alongside the steps, there is one at a time, whatever the policy allows, and a slot
is filled when its encode is done. Slots are never used again. Read `engine/planning/scheduler.py` next.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from ....protocols.engine.messages import Features
from ..plan import EncodeStep, Slot

_MAX_FAILED: Final = 1024
"""Failures that are remembered, so that a late request is told why."""


class SlotQueue:
    """Encodes and frees that the next plans carry. An encode nobody demands waits."""

    def __init__(
        self,
        *,
        max_encodes_per_step: int,
        max_tokens_per_step: int,
        frames_per_row: float = 0.0,
    ) -> None:
        """`frames_per_row`: of features whose encoding is attended to, if it is."""
        self.is_overlapped = False
        """Whether encodes of the plan being made go apart."""
        self._max_encodes = max_encodes_per_step
        self._max_now = max_encodes_per_step
        self._max_rows: int | None = None
        self._num_before = 0
        self._max_tokens = max_tokens_per_step
        self._frames_per_row = frames_per_row
        self._encodes: dict[Slot, Features] = {}
        self._filled: set[Slot] = set()
        self._in_flight: set[Slot] = set()  # apart
        self._failed: OrderedDict[Slot, str] = OrderedDict()
        self._frees: list[Slot] = []
        self._taken: list[EncodeStep] = []  # for the plan being made
        self._num_taken_tokens = 0
        self.has_refused = False
        """Whether an encode found no place since `allow`."""
        self.has_held = False
        """Whether one was longer than that allowed."""
        self.num_tokens = 0
        """Rows of all encodes planned so far."""

    @property
    def is_encoding(self) -> bool:
        """Whether something goes apart with the plan being made, or went and is not done."""
        return bool(self._in_flight)

    def encode(self, slot: Slot, features: Features) -> None:
        """Queue an encode into a new slot."""
        assert slot not in self._filled, f"slot {slot} is in use"
        assert slot not in self._encodes, f"slot {slot} is already to be encoded"
        self._encodes[slot] = features

    def drop(self, slot: Slot) -> bool:
        """Forget a queued encode. False if there is none."""
        return self._encodes.pop(slot, None) is not None

    def free(self, slot: Slot) -> None:
        """Queue the free of a filled slot."""
        self._filled.remove(slot)
        self._frees.append(slot)

    def fail(self, slot: Slot, error: str) -> None:
        """Note that the planned encode of `slot` failed."""
        self._filled.discard(slot)
        self._in_flight.discard(slot)
        self._failed[slot] = error
        if len(self._failed) > _MAX_FAILED:
            self._failed.popitem(last=False)

    def encoded(self, slot: Slot) -> None:
        """Note that the planned encode of `slot` is done."""
        if slot in self._in_flight:
            self._in_flight.remove(slot)
            self._filled.add(slot)

    def problem(self, slot: Slot) -> str | None:
        """Why a request on `slot` could never run, or None."""
        if slot in self._filled or slot in self._encodes or slot in self._in_flight:
            return None
        return self._failed.get(slot, f"encoder slot {slot} is empty")

    def demand(self, slot: Slot, num_tokens: int = 0) -> bool:
        """Whether the plan being made may use `slot`; plans its encode if it fits. Of its rows `num_tokens`
        lie in the prompt; where none do its features say how many are attended to."""
        if slot in self._filled:
            return True
        if slot not in self._encodes:
            return False
        if not num_tokens and self._frames_per_row:
            num_tokens = math.ceil(self._encodes[slot].shape[-1] / self._frames_per_row)
        if self._max_rows is not None and num_tokens > self._max_rows:
            self.has_held = True
            return False
        if not self._fits(num_tokens):
            self.has_refused = True
            return False
        (self._in_flight if self.is_overlapped else self._filled).add(slot)
        self._taken.append(EncodeStep(slot, self._encodes.pop(slot)))
        self._num_taken_tokens += num_tokens
        self.num_tokens += num_tokens
        return not self.is_overlapped

    @property
    def num_taken(self) -> int:
        """Encodes of the plan being made."""
        return len(self._taken)

    def allow(self, num_encodes: int, max_rows: int | None = None) -> None:
        """Let at most so many more into the plan being made, within its bounds; the first of them may be of
        any size, or all have at most `max_rows`."""
        self._num_before = len(self._taken)
        self._max_now = min(self._max_encodes, self._num_before + num_encodes)
        self._max_rows = max_rows
        self.has_refused = self.has_held = False

    def take_frees(self) -> tuple[Slot, ...]:
        """Frees of the plan being made."""
        frees = tuple(self._frees)
        self._frees.clear()
        return frees

    def take_encodes(self) -> tuple[EncodeStep, ...]:
        """Encodes of the plan being made; the next one begins with its budget whole."""
        encodes = tuple(self._taken)
        self._taken.clear()
        self._num_taken_tokens = self._num_before = 0
        self._max_now, self._max_rows = self._max_encodes, None
        return encodes

    def _fits(self, num_tokens: int) -> bool:
        if len(self._taken) >= self._max_now or (self.is_overlapped and self._in_flight):
            return False
        return len(self._taken) == self._num_before or self._num_taken_tokens + num_tokens <= self._max_tokens
