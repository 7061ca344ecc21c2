"""How much of something one connection, or all together, may do: a burst, then so many a second."""

from __future__ import annotations

import math

import trio


class Allowance:
    """It grows by `per_s` up to `burst`."""

    def __init__(self, *, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = burst
        self._as_of = -math.inf

    def spend(self, amount: float) -> bool:
        """Take `amount`; whether there was that much. What was not there is owed."""
        self._grow()
        self._left -= amount
        return self._left >= 0

    def take(self) -> bool:
        """Take one if there is one; whether there was."""
        self._grow()
        if self._left < 1:
            return False
        self._left -= 1
        return True

    async def earn(self) -> None:
        """Return when nothing is owed; let others go first in any case."""
        self._grow()
        await trio.sleep(max(0.0, -self._left / self._per_s))

    def _grow(self) -> None:
        now = trio.current_time()
        self._left = min(self._burst, self._left + (now - self._as_of) * self._per_s)
        self._as_of = now
