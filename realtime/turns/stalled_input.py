"""Whether a client has stopped sending in the middle of a turn: muted, or a line
that sends nothing during silence. Pure: the time is an argument.

Sound is late where none has come for longer than the usual time between two appends, and the time between two
hypotheses. `realtime/turns/listener.py` asks.
"""

from __future__ import annotations

import math
from typing import Final

MAX_GAP_S: Final = 2.0
"""A client that sends more at once than this is not waited for any longer."""
_SHRINKAGE: Final = 0.9
"""Of the gap that is remembered, with each append."""


class Stall:
    """When sound came last, and whether what had come by then is shown."""

    def __init__(self) -> None:
        self.is_begun = False
        """No sound comes any more."""
        self._sounded_at = math.inf
        self._gap_s = 0.0
        self._requested_end = -1

    def sounded(self, seconds: float, *, now: float) -> None:
        """So much sound came."""
        gap_s = now - self._sounded_at if self._sounded_at <= now and not self.is_begun else 0.0
        self._gap_s = min(max(seconds, gap_s, _SHRINKAGE * self._gap_s), MAX_GAP_S)
        self._sounded_at, self.is_begun = now, False

    def deadline(self, interval_s: float) -> float:
        """When it begins, if nothing comes until then and hypotheses come at that interval."""
        return math.inf if self.is_begun else self._sounded_at + self._gap_s + interval_s

    def begin(self) -> None:
        """Nothing came."""
        self.is_begun = True

    def is_news(self, end: int) -> bool:
        """Whether nothing was asked about up to there since sound came last; a failure is not asked again."""
        if end <= self._requested_end:
            return False
        self._requested_end = end
        return True
