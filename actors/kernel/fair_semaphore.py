"""Places that callers take in turn, however many of one of them wait. Each one's come in order."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


class FairSemaphore:
    """Held by as many tasks at a time as it has places. Cancelling a wait gives up the turn."""

    def __init__(self, num_places: int = 1) -> None:
        self._num_free = num_places
        self.num_held = 0
        self._waiting: OrderedDict[str, deque[trio.Event]] = OrderedDict()
        """By caller, whose turn comes first in front."""

    @property
    def is_full(self) -> bool:
        """Whether one more would wait."""
        return not self._num_free

    @property
    def num_waiting(self) -> int:
        """Tasks that wait."""
        return sum(map(len, self._waiting.values()))

    def num_waiting_of(self, caller: str) -> int:
        """Of them, those of one caller."""
        return len(self._waiting.get(caller, ()))

    @asynccontextmanager
    async def held_by(self, caller: str) -> AsyncGenerator[None]:
        """Hold a place on behalf of `caller`."""
        await self._acquire(caller)
        self.num_held += 1
        try:
            yield
        finally:
            self.num_held -= 1
            self._release()

    async def _acquire(self, caller: str) -> None:
        if self._num_free:
            await trio.lowlevel.checkpoint_if_cancelled()
            self._num_free -= 1
            return
        called = trio.Event()
        self._waiting.setdefault(caller, deque()).append(called)
        try:
            await called.wait()
        except trio.Cancelled:
            if called.is_set():
                self._release()
            else:
                self._waiting[caller].remove(called)
                if not self._waiting[caller]:
                    del self._waiting[caller]
            raise

    def _release(self) -> None:
        if not self._waiting:
            self._num_free += 1
            return
        caller, queue = self._waiting.popitem(last=False)
        queue.popleft().set()
        if queue:
            self._waiting[caller] = queue
