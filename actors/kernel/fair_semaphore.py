"""Places that callers take in turn, however many of one of them wait. Each one's come in order.

Who holds fewest goes first: one caller may hold every place while nobody else wants one, and not the next one
that is free.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from ..callers import give_back


class FairSemaphore:
    """Held by as many tasks at a time as it has places. Cancelling a wait gives up the turn."""

    def __init__(self, num_places: int = 1, *, spare_after_s: float = math.inf) -> None:
        """Where all places are held and a caller that holds none has waited for so many seconds, there is one
        more for such callers: else what takes long would keep them waiting."""
        self._num_places = num_places
        self._spare_after_s = spare_after_s
        self._held = Counter[str]()
        """By caller; a place is held from when its turn has come."""
        self._waiting: OrderedDict[str, deque[trio.Event]] = OrderedDict()
        """By caller, whose turn comes first in front."""

    @property
    def num_held(self) -> int:
        """Places that somebody has."""
        return self._held.total()

    @property
    def is_full(self) -> bool:
        """Whether one more would wait."""
        return self.num_held >= self._num_places

    @property
    def num_waiting(self) -> int:
        """Tasks that wait."""
        return sum(map(len, self._waiting.values()))

    def num_waiting_of(self, caller: str) -> int:
        """Of them, those of one caller."""
        return len(self._waiting.get(caller, ()))

    @asynccontextmanager
    async def held_by(self, caller: str, *, waited_s: float = 0.0) -> AsyncGenerator[None]:
        """Hold a place on behalf of `caller`, whose work has waited so long for places before."""
        await self._acquire(caller, max(0.0, self._spare_after_s - waited_s))
        try:
            yield
        finally:
            self._release(caller)

    async def _acquire(self, caller: str, spare_after_s: float) -> None:
        if not self.is_full:
            await trio.lowlevel.checkpoint_if_cancelled()
            self._held[caller] += 1
            return
        called = trio.Event()
        self._waiting.setdefault(caller, deque()).append(called)
        try:
            with trio.move_on_after(spare_after_s):
                await called.wait()
            if not called.is_set():
                self._call_next()
                await called.wait()
        except trio.Cancelled:
            if called.is_set():
                self._release(caller)
            else:
                self._waiting[caller].remove(called)
                if not self._waiting[caller]:
                    del self._waiting[caller]
            raise

    def _release(self, caller: str) -> None:
        give_back(self._held, caller)
        self._call_next()

    def _call_next(self) -> None:
        """Whose turn it is has a place, if there is one for it."""
        has_spare = self._spare_after_s < math.inf and self.num_held == self._num_places
        waiting = [each for each in self._waiting if not self.is_full or (has_spare and not self._held[each])]
        if not waiting:
            return
        following = min(waiting, key=self._held.__getitem__)
        queue = self._waiting.pop(following)
        queue.popleft().set()
        self._held[following] += 1
        if queue:
            self._waiting[following] = queue
