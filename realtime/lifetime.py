"""How long a session may live: its longest life, the time without events, the grace of a drain. Pure.

Each of the first two is announced `WARNING_S` before, or half-way where it is shorter. In a drain who speaks
may finish: a turn is heard until it ends, or nothing comes any more, for as long as leaves time to answer.
`realtime/session.py` says it to the client and closes.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from ..protocols.realtime.lifecycle import ExpiryReason
from .config import SessionConfig

WARNING_S: Final = 60.0
"""Time to open another session, or to say something."""
ANSWER_S: Final = 2.0
"""Of the grace, what is kept for the answer about a turn that is cut off; of a short one, half."""
QUIET_S: Final = 1.0
"""A client that sends no sound for so long in a drain has no more to say."""


class Notice(msgspec.Struct, frozen=True):
    """A limit of time: 0 seconds left means now."""

    reason: ExpiryReason
    seconds_left: float


class _Limit:
    """One point in time and the warning before it."""

    def __init__(self, reason: ExpiryReason, length_s: float) -> None:
        self.reason = reason
        self.end = math.inf
        self._length_s = length_s
        self._warning = math.inf

    @property
    def deadline(self) -> float:
        return min(self.end, self._warning)

    def start(self, now: float) -> None:
        self.end = now + self._length_s
        self._warning = self.end - min(WARNING_S, self._length_s / 2)

    def warn(self, now: float) -> Notice | None:
        """The warning, once, if it is due."""
        if now < self._warning:
            return None
        self._warning = math.inf
        return Notice(self.reason, self.end - now)


class Lifetime:
    """All limits of time of one session."""

    def __init__(self, config: SessionConfig) -> None:
        self._drain_s = config.drain_s
        self._session = _Limit("session_expired", config.max_session_s)
        self._idle = _Limit("session_idle", config.idle_s)
        self._drain_end = self._audio_end = self._quiet_end = math.inf
        self.refuses_audio = False
        """In a drain: no more is heard."""

    @property
    def draining(self) -> bool:
        """The server is stopping."""
        return self._drain_end < math.inf

    @property
    def deadline(self) -> float:
        """When `due` has something to say."""
        ends = self._drain_end, self._audio_end, self._quiet_end
        return min(self._session.deadline, self._idle.deadline, *ends)

    def open(self, now: float) -> None:
        """The session begins."""
        self._session.start(now)
        self._idle.start(now)

    def touch(self, now: float) -> None:
        """Something happened."""
        self._idle.start(now)

    def drain(self, now: float) -> Notice | None:
        """The server stops: the warning to give, the first time."""
        if self.draining:
            return None
        self._drain_end = now + self._drain_s
        self._audio_end = self._drain_end - min(ANSWER_S, self._drain_s / 2)
        self._quiet_end = now + QUIET_S
        return Notice("server_draining", self._drain_s)

    def sounded(self, now: float) -> None:
        """Sound came: in a drain, too, there is somebody who speaks."""
        if self._quiet_end < math.inf:
            self._quiet_end = now + QUIET_S

    def may_receive_audio(self, now: float) -> bool:
        """Whether there is time to hear a turn out."""
        return now < min(self._audio_end, self._quiet_end)

    def stop_audio(self) -> None:
        """All that was said in a drain has been heard."""
        self._audio_end = self._quiet_end = math.inf
        self.refuses_audio = True

    def due(self, now: float) -> list[Notice]:
        """What was reached: one end (0 s left), else the warnings that are due; each is given once."""
        if now >= self._drain_end:
            return [Notice("server_draining", 0.0)]
        for limit in (self._session, self._idle):
            if now >= limit.end:
                return [Notice(limit.reason, 0.0)]
        warnings = [limit.warn(now) for limit in (self._session, self._idle)]
        return [warning for warning in warnings if warning is not None]
