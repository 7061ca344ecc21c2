"""Places that callers share and wait for: whoever has none finds one, however many another one wants.

Knows nothing of what they are for. The rule is that of `actors/callers.py`; `fetcher.py` and
`dns.py` beside it use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ..callers import give_back, has_room


class Places:
    """`most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()
        self._left = trio.lowlevel.ParkingLot()
        self.num_waiting = 0

    @property
    def num_taken(self) -> int:
        """Those that somebody has."""
        return self._held.total()

    @asynccontextmanager
    async def taken(self, caller: str) -> AsyncIterator[None]:
        """Have one within the context."""
        await self.take(caller)
        try:
            yield
        finally:
            self.leave(caller)

    async def take(self, caller: str) -> None:
        """Have one, once there is one for `caller`; the empty name is everybody's, and may have all."""
        self.num_waiting += 1
        try:
            while not self.take_nowait(caller):
                await self._left.park()
        finally:
            self.num_waiting -= 1

    def take_nowait(self, caller: str) -> bool:
        """Have one, if there is one for `caller` now."""
        if not has_room(self._held[caller], self.num_taken, self._most, is_shared=bool(caller)):
            return False
        self._held[caller] += 1
        return True

    def leave(self, caller: str) -> None:
        """Have one less."""
        give_back(self._held, caller)
        self._left.unpark_all()
