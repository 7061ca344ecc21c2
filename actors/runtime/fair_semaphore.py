"""Places that callers take in turn, however many of one of them wait. Each one's come in order.

Who holds fewest goes first: one caller may hold every place while no other wants one, and not the next one
that is free. A better rank goes before a worse one, which is passed over `PATIENCE` times at most.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from ..callers import give_back

Rank = tuple[int, int]
"""Class of service and priority in it; lower goes first."""

PATIENCE: Final = 4
"""How often a rank lets better ones pass."""


@dataclass(slots=True, eq=False)
class Place:
    """One that is held, or waited for."""

    caller: str
    rank: Rank
    is_held: bool = False
    called: trio.Event = field(default_factory=trio.Event)


class FairSemaphore:
    """Held by as many tasks at a time as it has places. Cancelling a wait gives up the turn."""

    def __init__(self, num_places: int = 1, *, spare_after_s: float = math.inf) -> None:
        """Where all places are held and a caller that holds none has waited for so many seconds, there is one
        more for such callers: else what takes long would keep them waiting."""
        self.num_places = num_places
        """May change: what is held stays so."""
        self._spare_after_s = spare_after_s
        self._held = Counter[str]()
        """By caller; a place is held from when its turn has come."""
        self._waiting: dict[Rank, OrderedDict[str, deque[Place]]] = {}
        """By rank and caller, whose turn comes first in front."""
        self._passed = Counter[Rank]()
        """How often a rank that waits was passed over."""

    @property
    def num_held(self) -> int:
        """Places that are taken."""
        return self._held.total()

    @property
    def is_full(self) -> bool:
        """Whether one more would wait."""
        return self.num_held >= self.num_places

    @property
    def num_waiting(self) -> int:
        """Tasks that wait."""
        return sum(len(queue) for line in self._waiting.values() for queue in line.values())

    def num_waiting_of(self, caller: str) -> int:
        """Of them, those of one caller."""
        return sum(len(line.get(caller, ())) for line in self._waiting.values())

    @asynccontextmanager
    async def held_by(
        self, caller: str, rank: Rank = (0, 0), *, waited_s: float = 0.0
    ) -> AsyncGenerator[Place]:
        """Hold a place on behalf of `caller`, whose work has waited so long for places before."""
        place = Place(caller, rank)
        if self.is_full:
            self._enqueue(place)
            await self._wait(place, max(0.0, self._spare_after_s - waited_s))
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
            self._give(place)
        try:
            yield place
        finally:
            if place.is_held:
                self._release(place)

    async def give_way(self, place: Place) -> None:
        """Let those go first whose turn it is, then hold the place again: before the caller's other tasks, so
        that what has begun is not joined by ever more that has. Cancelled, it is not held any more."""
        if self._waiting and place.is_held:
            self._enqueue(place, is_first=True)
            self._release(place)
            await self._wait(place)

    def _give(self, place: Place) -> None:
        place.is_held = True
        self._held[place.caller] += 1

    def _release(self, place: Place) -> None:
        place.is_held = False
        give_back(self._held, place.caller)
        self._call_next()

    def _enqueue(self, place: Place, *, is_first: bool = False) -> None:
        place.called = trio.Event()
        line = self._waiting.setdefault(place.rank, OrderedDict())
        queue = line.setdefault(place.caller, deque())
        if is_first:
            queue.appendleft(place)
            line.move_to_end(place.caller)
        else:
            queue.append(place)

    async def _wait(self, place: Place, spare_after_s: float | None = None) -> None:
        try:
            with trio.move_on_after(self._spare_after_s if spare_after_s is None else spare_after_s):
                await place.called.wait()
            if not place.is_held:
                self._call_next()
                await place.called.wait()
        except trio.Cancelled:
            if place.is_held:
                self._release(place)
            else:
                self._take_out(place)
            raise

    def _take_out(self, place: Place) -> None:
        line = self._waiting[place.rank]
        line[place.caller].remove(place)
        if not line[place.caller]:
            del line[place.caller]
        if not line:
            del self._waiting[place.rank], self._passed[place.rank]

    def _call_next(self) -> None:
        """Whose turn it is has a place, if there is one for it."""
        has_spare = self._spare_after_s < math.inf and self.num_held == self.num_places
        callers = {
            rank: [each for each in line if not self.is_full or (has_spare and not self._held[each])]
            for rank, line in sorted(self._waiting.items())
        }
        ranks = [rank for rank, waiting in callers.items() if waiting]
        if not ranks:
            return
        rank = next((each for each in ranks if self._passed[each] >= PATIENCE), ranks[0])
        self._passed.update(each for each in ranks if each > rank)
        self._passed[rank] = 0
        line = self._waiting[rank]
        following = min(callers[rank], key=self._held.__getitem__)
        place = line[following][0]
        self._take_out(place)
        if following in line:
            line.move_to_end(following)
        self._give(place)
        place.called.set()
