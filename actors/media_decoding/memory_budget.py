"""The memory that media of all requests may take together: reserved before anything is decoded.

What a file will come to is measured from its headers first (`media/worker.py`), all files of a request at
once, so that no request holds a part of the budget while it waits for more. Who finds too little left waits
in line for a moment, and no request takes more than half. Callers share as `actors/callers.py` says; in line,
only a caller that holds less overtakes, so a larger request is not overtaken by smaller ones of the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from ...protocols.errors import OverloadedError, TooLargeError
from ..callers import has_room

_ROUGHLY: Final = 8
"""A header that is wrong by one in so many is no lie: an AAC file has a frame more than it says. Who was let
in with it is not turned away afterwards for what others might want."""


@dataclass(slots=True)
class Reservation:
    """A request's share of the budget."""

    num_bytes: int
    _budget: MediaBudget
    _caller: str

    def settle(self, num_bytes: int) -> None:
        """What it came to: usually less than was reserved, and if a header lied, more, without waiting.

        Raises OverloadedError if there is too little left for that.
        """
        more, num_free = num_bytes - self.num_bytes, self._budget.max_bytes - self._budget.num_bytes
        if more > min(num_free, self.num_bytes // _ROUGHLY):
            self._check(more)
        self._budget.change(more, self._caller)
        self.num_bytes = num_bytes

    def grow(self, num_bytes: int) -> None:
        """Take more while it arrives. Raises as `settle` does."""
        self._check(num_bytes)
        self.settle(self.num_bytes + num_bytes)

    def _check(self, more: int) -> None:
        if more > 0 and not self._budget.has_room(more, self._caller):
            raise OverloadedError("Too much media is being decoded; try again.", retry_after_s=5.0)


@dataclass(slots=True)
class _Place:
    """A place in the line."""

    num_bytes: int
    caller: str
    has_turn: trio.Event = field(default_factory=trio.Event)


class MediaBudget:
    """Shared by all requests of a server."""

    def __init__(self, *, max_bytes: int = 2 << 30, wait_s: float = 2.0) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        """Reserved now."""
        self._held: Counter[str] = Counter()
        """The same by caller."""
        self._wait_s = wait_s
        self._line: list[_Place] = []

    @asynccontextmanager
    async def reserved(self, num_bytes: int, caller: str = "") -> AsyncIterator[Reservation]:
        """Hold so much for the duration, for a caller (`Lane.caller`). A request does this once.

        Raises TooLargeError for more than one request may have, OverloadedError if too little is given back
        in time.
        """
        if num_bytes > self.max_bytes // 2:
            raise TooLargeError(
                f"The request's media come to {num_bytes:,} bytes; the limit is {self.max_bytes // 2:,}."
            )
        if num_bytes:
            await self._wait_for(_Place(num_bytes, caller))
        reservation = Reservation(num_bytes, self, caller)
        try:
            yield reservation
        finally:
            reservation.settle(0)

    def has_room(self, num_bytes: int, caller: str) -> bool:
        """Whether a caller may take so much more now."""
        num_held, is_shared = self._held[caller], bool(caller)
        return not num_bytes or has_room(
            num_held, self.num_bytes, self.max_bytes, num_bytes, is_shared=is_shared
        )

    def change(self, num_bytes: int, caller: str) -> None:
        """Take more, or give back."""
        self._take(num_bytes, caller)
        self._let_go()

    def _take(self, num_bytes: int, caller: str) -> None:
        self.num_bytes += num_bytes
        self._held[caller] += num_bytes
        if not self._held[caller]:
            del self._held[caller]

    def _let_go(self) -> None:
        """Give those in line their turn, as far as there is room."""
        least = math.inf  # held by a caller that still waits
        for place in tuple(self._line):
            if self._held[place.caller] < least and self.has_room(place.num_bytes, place.caller):
                self._line.remove(place)
                self._take(place.num_bytes, place.caller)
                place.has_turn.set()
            else:
                least = min(least, self._held[place.caller])

    async def _wait_for(self, place: _Place) -> None:
        self._line.append(place)
        self._let_go()
        try:
            with trio.move_on_after(self._wait_s) if self._wait_s < math.inf else trio.CancelScope():
                await place.has_turn.wait()
        except trio.Cancelled:
            self._leave(place)
            raise
        if not place.has_turn.is_set():
            self._leave(place)
            raise OverloadedError("Too much media is being decoded; try again.", retry_after_s=5.0)

    def _leave(self, place: _Place) -> None:
        """Give up a place in line, or what came of it at the last moment."""
        if place.has_turn.is_set():
            self.change(-place.num_bytes, place.caller)
        else:
            self._line.remove(place)
            self._let_go()
