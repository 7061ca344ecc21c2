"""A lock that callers take in turn, however many of one of them wait. Each one's come in order."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


class FairLock:
    """Held by one task at a time. Cancelling a wait gives up the place."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: OrderedDict[str, deque[trio.Event]] = OrderedDict()
        """By caller, whose turn comes first in front."""

    @asynccontextmanager
    async def held_by(self, caller: str) -> AsyncGenerator[None]:
        """Hold it on behalf of `caller`."""
        await self._acquire(caller)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, caller: str) -> None:
        if not self._is_held:
            await trio.lowlevel.checkpoint_if_cancelled()
            self._is_held = True
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
            self._is_held = False
            return
        caller, queue = self._waiting.popitem(last=False)
        queue.popleft().set()
        if queue:
            self._waiting[caller] = queue
