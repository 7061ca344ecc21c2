"""How much of something one connection may do: a burst, then so many a second."""

from __future__ import annotations

import trio


class Allowance:
    """It grows by `per_s` up to `burst`."""

    def __init__(self, *, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = burst
        self._as_of = trio.current_time()

    def spend(self, amount: float) -> bool:
        """Take `amount`; whether there was that much. What was not there is owed."""
        now = trio.current_time()
        self._left = min(self._burst, self._left + (now - self._as_of) * self._per_s) - amount
        self._as_of = now
        return self._left >= 0

    async def earn(self) -> None:
        """Return when nothing is owed; let others go first in any case."""
        await trio.sleep(max(0.0, -self._left / self._per_s))
