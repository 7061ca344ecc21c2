"""Whose turn it is among callers in one line: start-time fair queueing of requests that count alike.

Each request gets a turn when it comes: one more than the last of its caller's that wait, and never one that
is over. Who gives up before it has used none. Sorted by turn, a caller with a thousand requests has one of
them done for each of a newcomer's; a caller alone is served in the order of arrival. Nothing waits for ever,
for turns only rise. Those of one group and priority stand in one line, and each line has a clock of its own:
with one for all, a caller's batch would put its live requests last. Used by `engine/planning/queues.py`.

Source: Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996), with all lengths 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

Line = tuple[int, int]
"""A group of the scheduling policy, and a priority."""

_SHIFT: Final = 40
"""Bits for counting arrivals: one in a microsecond for twelve days."""


class FairTurns:
    """The turns of one line."""

    def __init__(self) -> None:
        self._now = 0
        self._num_arrived = 0

    def take(self, last: int) -> int:
        """A turn: a number to sort by, that no other request has. `last` is the latest of its caller's that
        wait, 0 if none does."""
        self._num_arrived += 1
        return (max(self._now, last >> _SHIFT) + 1) << _SHIFT | self._num_arrived

    def begin(self, taken: int) -> None:
        """It is this request's turn: whoever comes from now on comes behind it."""
        self._now = max(self._now, taken >> _SHIFT)


class FairLines:
    """The turns of all lines, as far as there is somebody in them."""

    def __init__(self) -> None:
        self._lines: dict[Line, FairTurns] = {}

    def take(self, line: Line, last: int, present: Iterable[Line]) -> int:
        """A turn as `FairTurns` gives it. `present` are the lines of all who wait or are served: others are
        forgotten."""
        if line not in self._lines:
            kept = self._lines
            self._lines = {each: kept[each] for each in set(present)}
        return self._lines.setdefault(line, FairTurns()).take(last)

    def begin(self, line: Line, taken: int) -> None:
        """See `FairTurns.begin`."""
        self._lines[line].begin(taken)
