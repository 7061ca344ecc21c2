"""Pauses in which a turn may have ended, judged by what was said before them once that is known. Pure.

How long a turn's silence must last hangs on what was said (`end_of_turn.py`), which may be known only when
somebody speaks again, as late as the model is. So a pause that is long enough for some ending is kept until
it is judged, and the turn ends there in retrospect: where turns end depends on the sound alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .end_of_turn import Ending

MOST_PAUSES: Final = 16
"""That wait to be judged; of more the earliest are no ends."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence between two frames of speech: from its first sample to where speech goes on."""

    start: int
    end: int


@dataclass(slots=True)
class Pauses:
    """Those of the open turn that are not judged."""

    _waiting: deque[Pause] = field(default_factory=lambda: deque(maxlen=MOST_PAUSES))

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def first(self) -> Pause:
        """The earliest."""
        return self._waiting[0]

    def add(self, pause: Pause, waits: Mapping[Ending, int]) -> None:
        """Speech goes on behind a pause; it is kept if some ending, by its wait in samples, ends there."""
        if pause.end - pause.start >= min(waits.values()):
            self._waiting.append(pause)

    def judge(self, ending: Ending, waits: Mapping[Ending, int]) -> Pause | None:
        """What was said before the earliest pause ends so: the pause, if the turn ends there."""
        pause = self._waiting.popleft()
        return pause if pause.end - pause.start >= waits[ending] else None

    def drop(self, before: int) -> None:
        """Forget those that begin before a sample: what was asked about reaches behind them."""
        while self._waiting and self._waiting[0].start < before:
            self._waiting.popleft()

    def clear(self) -> None:
        """The turn is over."""
        self._waiting.clear()
