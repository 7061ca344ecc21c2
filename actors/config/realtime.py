"""Bounds on live sessions: one of the value objects of `actors/config/server.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from ...protocols.transcription.options import Delay
from .validation import MIB, check, check_word


@dataclass(frozen=True, slots=True)
class RealtimeConfig:
    """Bounds on live sessions; clients see them in `session.created`.

    Attributes
    ----------
    max_sessions
        Live sessions at once; more are refused with an error event and close code 1013. As many WebSockets
        may be open at /v1/responses.
    max_append_mib
        Largest audio in one append, in MiB.
    max_backlog_ms
        Audio that may wait for a hypothesis before appends are refused, in milliseconds.
    release_delay
        How soon the text of sessions that name no delay is released: minimal is soonest, xhigh is corrected
        least.
    force_turn_s
        Longest turn with turn detection, in seconds: it is ended at a quiet place then.
    max_turn_s
        Longest turn that the client ends, in seconds: more audio is refused then.
    max_session_s
        Longest life of one session, in seconds.
    idle_s
        Seconds without any event from the client before its session is closed.
    resume_grace_s
        Seconds a session waits for a client whose socket was lost; 0 ends it with its socket.
    max_detached
        Sessions kept for a disconnected client, of max_sessions. With more, the oldest one of the caller with
        most of them ends.
    outbox_events
        Events that may wait for a slow reader before its session is closed.
    outbox_mib
        The same bound in MiB.
    """

    max_sessions: int = 64
    max_append_mib: float = 15.0
    max_backlog_ms: int = 300_000
    release_delay: Delay = "medium"
    force_turn_s: float = 60.0
    max_turn_s: float = 900.0
    max_session_s: float = 24 * 3600.0
    idle_s: float = 600.0
    resume_grace_s: float = 30.0
    max_detached: int = 32
    outbox_events: int = 2048
    outbox_mib: float = 4.0

    def __post_init__(self) -> None:
        check("max_sessions", self.max_sessions, 1)
        check("max_append_mib", self.max_append_mib, 0.001, 64)
        check("max_backlog_ms", self.max_backlog_ms, 1_000)
        check_word("release_delay", self.release_delay, get_args(Delay))
        check("force_turn_s", self.force_turn_s, 2)
        check("max_turn_s", self.max_turn_s, 1)
        check("max_session_s", self.max_session_s, 1)
        check("idle_s", self.idle_s, 0.1)
        check("resume_grace_s", self.resume_grace_s, 0, 3600)
        check("max_detached", self.max_detached, 1)
        check("outbox_events", self.outbox_events, 8)
        check("outbox_mib", self.outbox_mib, 0.01)

    @property
    def max_append_bytes(self) -> int:
        """Largest audio in one append, in bytes."""
        return int(self.max_append_mib * MIB)

    @property
    def max_message_bytes(self) -> int:
        """Largest WebSocket message: the largest append as base64 inside JSON."""
        return self.max_append_bytes * 4 // 3 + 64 * 1024

    @property
    def outbox_bytes(self) -> int:
        """Bytes that may wait for a slow reader."""
        return int(self.outbox_mib * MIB)
