"""How much less often partial hypotheses are asked for while they come late. Pure: the time is an argument.

An engine with too much to do answers later and later if everybody goes on asking. So each session watches
how long its own questions take: an answer that comes later than the next question would usually be due means
too many questions, and the interval grows to twice that time; while answers come in time it shrinks again,
slowly. Finals are asked for at once, always. `realtime/turns/listener.py` asks.
"""

from __future__ import annotations

from typing import Final

from ...protocols.engine.messages import ItemId

MAX_FACTOR: Final = 8.0
"""Text is seen to grow even so: every few seconds."""
_HEADROOM: Final = 2.0
"""The interval to grow to, in answers' times: the engine gets rest, for finals and for first texts."""
_GROWTH: Final = 2.0
"""Most growth by one answer, since one may be late for reasons of its own."""
_SHRINKAGE: Final = 0.9


class Pace:
    """The interval's factor of one session, from 1 to `MAX_FACTOR`."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.lag_s = 0.0
        """How long the newest answer took: the audio had been received when the question was asked."""
        self._requested: tuple[ItemId, float, float] | None = None

    def requested(self, item_id: ItemId, interval_ms: int, *, now: float) -> None:
        """A partial hypothesis was asked for, where `interval_ms` is the usual time between two."""
        self._requested = item_id, interval_ms / 1000, now

    def answered(self, item_id: ItemId, *, now: float) -> None:
        """There it is; answers to older questions say nothing."""
        if self._requested is None or self._requested[0] != item_id:
            return
        (_, usual_s, requested_at), self._requested = self._requested, None
        self.lag_s = now - requested_at
        wanted = 1.0
        if self.lag_s > usual_s:
            wanted = min(_HEADROOM * self.lag_s / usual_s, MAX_FACTOR)
        self.factor = min(max(wanted, _SHRINKAGE * self.factor), _GROWTH * self.factor)
