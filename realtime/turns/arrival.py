"""Whether a session's audio comes as it is spoken, or is pushed. Pure: the time is an argument.

Speech that somebody is speaking comes before everything else; a recording that a client sends as fast as the
server takes it is a file in another form, and must not delay the others' speech. What came late, because a
network stood still, may come at once; so may a little more. `actors/live/session.py` asks.
"""

from __future__ import annotations

from typing import Final

SLACK_S: Final = 2.0
"""Audio that may come before its time: clients send some ahead."""
LEEWAY: Final = 1.25
"""What comes so much faster than it is spoken is on time; so nobody who was ahead once remains so."""
MAX_LATE_S: Final = 30.0
"""Time that may be made good at once. Who was silent for longer was not cut off."""


class Arrival:
    """The audio of one session against the clock."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._as_of: float | None = None

    def came(self, seconds: float, *, now: float) -> None:
        """So much audio came."""
        passed = LEEWAY * (now - (now if self._as_of is None else self._as_of))
        self._ahead_s = max(-MAX_LATE_S, self._ahead_s - passed) + seconds
        self._as_of = now

    @property
    def is_pushed(self) -> bool:
        """It comes faster than anybody speaks."""
        return self._ahead_s > SLACK_S
