"""Whose turn it is among callers of one class: start-time fair queueing of requests that count alike.

Each request gets a turn when it comes: one more than the last of its caller's that wait, and never one that
is over. Who gives up before it has used none. Sorted by turn, a caller with a thousand requests has one of
them done for each of a newcomer's; a caller alone is served in the order of arrival. Nothing waits for ever,
for turns only rise. Used by `engine/planning/queues.py`.

Source: Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996), with all lengths 1.
"""

from __future__ import annotations

from typing import Final

_SHIFT: Final = 40
"""Bits for counting arrivals: one in a microsecond for twelve days."""


class FairTurns:
    """The turns of one engine."""

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
