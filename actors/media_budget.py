"""The memory that media of all requests may take together: reserved before anything is decoded.

What a file will come to is measured from its headers first (`media/worker.py`), all files of a request at
once, so that no request holds a part of the budget while it waits for more. Who finds too little left waits
in line for a moment, larger requests are not overtaken by smaller ones, and nobody takes more than half.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from ..protocols.errors import OverloadedError, TooLargeError


@dataclass(slots=True)
class Reservation:
    """A request's share of the budget."""

    num_bytes: int
    _budget: MediaBudget

    def settle(self, num_bytes: int) -> None:
        """What it came to: usually less than was reserved, and if a header lied, more."""
        self._budget.change(num_bytes - self.num_bytes)
        self.num_bytes = num_bytes

    def grow(self, num_bytes: int) -> None:
        """Take more while it arrives, without waiting. Raises OverloadedError if there is too little left."""
        if self._budget.num_bytes + num_bytes > self._budget.max_bytes:
            raise OverloadedError("Too much media is in hand; try again.", retry_after_s=5.0)
        self.settle(self.num_bytes + num_bytes)


@dataclass(slots=True)
class _Place:
    """A place in the line."""

    num_bytes: int
    has_turn: trio.Event = field(default_factory=trio.Event)


class MediaBudget:
    """Shared by all requests of a server."""

    def __init__(self, *, max_bytes: int = 2 << 30, wait_s: float = 2.0) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        """Reserved now."""
        self._wait_s = wait_s
        self._line: deque[_Place] = deque()

    @asynccontextmanager
    async def reserved(self, num_bytes: int) -> AsyncIterator[Reservation]:
        """Hold so much for the duration. A request does this once.

        Raises TooLargeError for more than one request may have, OverloadedError if too little is given back
        in time.
        """
        if num_bytes > self.max_bytes // 2:
            raise TooLargeError(
                f"The request's media come to {num_bytes:,} bytes; the limit is {self.max_bytes // 2:,}."
            )
        if num_bytes:
            await self._wait_for(num_bytes)
        reservation = Reservation(num_bytes, self)
        try:
            yield reservation
        finally:
            reservation.settle(0)

    def change(self, num_bytes: int) -> None:
        """Take more, or give back."""
        self.num_bytes += num_bytes
        while self._line and self.num_bytes + self._line[0].num_bytes <= self.max_bytes:
            place = self._line.popleft()
            self.num_bytes += place.num_bytes
            place.has_turn.set()

    async def _wait_for(self, num_bytes: int) -> None:
        place = _Place(num_bytes)
        self._line.append(place)
        self.change(0)
        try:
            with trio.move_on_after(self._wait_s) if self._wait_s < math.inf else trio.CancelScope():
                await place.has_turn.wait()
        except trio.Cancelled:
            self._leave(place)
            raise
        if not place.has_turn.is_set():
            self._leave(place)
            raise OverloadedError("Too much media is in hand; try again.", retry_after_s=5.0)

    def _leave(self, place: _Place) -> None:
        """Give up a place in line, or what came of it at the last moment."""
        if place.has_turn.is_set():
            self.change(-place.num_bytes)
        else:
            self._line.remove(place)
            self.change(0)
