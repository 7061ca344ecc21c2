"""What a client must remember to go on with a session whose connection was lost, without sockets or clock.

`Resumption` numbers everything that is sent and keeps the newest of it, and notes how far the server's events
arrived. The server then says how many of ours it has taken in; what came after is sent again. Used by
`client/realtime/transcription_machine.py`; the shells only reconnect.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator
from typing import Final

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from ...protocols.realtime.codec import decode_server_event, encode_event
from ...protocols.realtime.events import Error, ServerEvent, SessionCreated
from ...protocols.realtime.lifecycle import SessionResume, SessionResumed
from ..connection import status_error
from ..errors import SDKError
from .events import Event, UnknownEvent

RESEND_BYTES: Final = 4 * 1024 * 1024
"""What is kept to be sent again: 87 s of PCM16 at 24 kHz, for a grace and what lay in socket buffers."""

CONNECT_TIMEOUT_S: Final = 5.0
"""One attempt to reconnect may take so long: there are others."""

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 4.0
_LOST_CODES: Final = frozenset({1001, 1006, 1014})
"""Close codes of what lies between us and the server; the server itself never says these."""
_GONE_CODES: Final = frozenset({"session_not_found", "session_lost"})
"""Refusals that say that the session is not there any more, as after a restart of its server."""
_FINAL_CODES: Final = _GONE_CODES | {"invalid_resume_token", "resume_gap", "invalid_value"}
"""Refusals that another attempt cannot change."""
_FINAL_STATUSES: Final = frozenset({401, 403})
"""Answers to a handshake that another attempt cannot change: the key has expired."""
_MAX_STUCK: Final = 5
"""Times that a connection may break at one frame, with nothing received in between."""
_SERVER_GONE: Final = 1012
"""Close code of a server that restarts, and of a gateway whose server is gone."""
_OUR_COMPLAINTS: Final = frozenset({1002, 1007, 1009})
"""Close codes with which we refuse what the server sent; it would send that again."""


_NO_ANSWER: Final = "nobody answered in time"
"""Why a session could not be resumed, if there is no better reason."""


class ResumeRefusedError(SDKError):
    """The server does not let us go on; `is_final`: not later either."""

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


ATTEMPT_ERRORS: Final = (ResumeRefusedError, OSError, WebSocketException, ValueError)
"""What an attempt to reconnect may raise: we are refused, nobody is there yet, or nobody who speaks like a
server."""


class Resumption:
    """One session's memory. Bounded by `max_bytes`, whatever the session's age."""

    def __init__(self, *, max_bytes: int = RESEND_BYTES) -> None:
        self._max_bytes = max_bytes
        self._frames: deque[str | bytes] = deque()
        self._num_bytes = 0
        self._num_sent = 0
        self._created: SessionCreated | None = None
        self._forgone = False
        self._is_refused = False
        self._place = (0, 0)
        self._num_stuck = 0
        self.not_resumed: str | None = None
        """Why the last attempt to go on with another connection failed."""
        self.is_gone = False
        """The session is not there any more."""
        self._give_up_at: float | None = None  # while the connection is lost
        self.last_seq = 0
        """Number of the newest event that arrived."""

    @property
    def grace_s(self) -> float:
        """How long a lost session can be resumed; 0: not at all."""
        if self._created is None or not self._created.session.resume_token or self._forgone:
            return 0.0
        return self._created.session.limits.resume_grace_s

    @property
    def num_bytes(self) -> int:
        """What is kept."""
        return self._num_bytes

    def forgo(self) -> None:
        """What the server was sent is not known any more: never resume, and keep nothing."""
        self._forgone = True
        self._frames.clear()
        self._num_bytes = 0

    def sent(self, frame: str | bytes) -> None:
        """`frame` is about to be sent, as the next one, on whichever connection."""
        if self._forgone:
            return
        self._num_sent += 1
        self._frames.append(frame)
        self._num_bytes += len(frame)
        while self._num_bytes > self._max_bytes:
            self._num_bytes -= len(self._frames.popleft())

    def arrived(self, event: Event) -> bool:
        """Note an event of the stream; False for one that was there before."""
        if isinstance(event, SessionCreated) and self._created is None:
            self._created = event
            if not event.session.resume_token:
                self.forgo()
        seq = getattr(event, "server_event_seq", 0)
        if isinstance(event, UnknownEvent):
            seq = event.data.get("server_event_seq")
        if not isinstance(seq, int) or not seq:
            return True  # another server's, or no part of the stream
        if seq <= self.last_seq:
            return False
        self.last_seq = seq
        return True

    def attempts(self, now: float) -> tuple[float, Iterator[float]]:
        """The connection is lost: until when to try to go on with another one, and how many seconds to wait
        before each attempt. (It was lost at the first call, if that one's attempts were cancelled.)

        Each attempt ends in `failed` or `succeeded`; there are no more once the server has refused for good.
        """
        self._is_refused = False
        self.not_resumed = _NO_ANSWER
        self._give_up_at = self._give_up_at or now + self.grace_s
        return self._give_up_at, itertools.takewhile(lambda _: not self._is_refused, waits(self.grace_s))

    def failed(self, error: Exception) -> None:
        """An attempt raised one of ATTEMPT_ERRORS."""
        if isinstance(error, InvalidStatus):
            error = _refused_handshake(error)
        if isinstance(error, ResumeRefusedError):
            self.not_resumed = str(error)
            self._is_refused = error.is_final

    def succeeded(self) -> None:
        """The session goes on, with another connection."""
        self._give_up_at = self.not_resumed = None

    def resume_frame(self) -> str:
        """The first frame of a new connection."""
        assert self._created is not None
        session = self._created.session
        assert isinstance(session.resume_token, str)
        return encode_event(SessionResume(session.id, session.resume_token, self.last_seq))

    def answer(self, event: ServerEvent | Event) -> list[str | bytes] | None:
        """What to send again, if `event` answers the wish; None for what else a connection says first.

        Raises ResumeRefusedError.
        """
        match event:
            case SessionResumed(received_events=taken):
                if taken < self._num_sent - len(self._frames):
                    raise ResumeRefusedError(
                        "lost audio is no longer kept, so it cannot be sent again", is_final=True
                    )
                self._check_progress(taken)
                return list(self._frames)[len(self._frames) - (self._num_sent - taken) :]
            case Error(error=problem):
                message = problem.message or problem.code or "the server refused to resume the session"
                self.is_gone = problem.code in _GONE_CODES
                raise ResumeRefusedError(message, is_final=problem.code in _FINAL_CODES)
            case _:
                return None

    def _check_progress(self, taken: int) -> None:
        """Raise ResumeRefusedError if the connection breaks whenever the same frame is sent."""
        place = (taken, self.last_seq)
        is_stuck = taken < self._num_sent and place == self._place
        self._num_stuck = self._num_stuck + 1 if is_stuck else 0
        self._place = place
        if self._num_stuck >= _MAX_STUCK:
            raise ResumeRefusedError("the connection breaks at the same place again and again", is_final=True)


def _refused_handshake(error: InvalidStatus) -> ResumeRefusedError:
    """The server answers, but opens no connection."""
    answer = status_error(error.response.status_code, bytes(error.response.body or b""))
    return ResumeRefusedError(str(answer), is_final=answer.status in _FINAL_STATUSES)


def greeting(frame: str | bytes) -> SessionCreated:
    """What another session begins with. Raises ResumeRefusedError where the server does not take one now."""
    event = decode_server_event(frame)
    if isinstance(event, SessionCreated):
        return event
    problem = event.error.message if isinstance(event, Error) else None
    raise ResumeRefusedError(problem or "the server begins no session", is_final=False)


def is_lost(error: ConnectionClosed) -> bool:
    """Whether a connection broke, rather than was closed by the server, or by us for what it sent."""
    if error.rcvd is not None:
        return error.rcvd.code in _LOST_CODES
    return error.sent is None or error.sent.code not in _OUR_COMPLAINTS


def is_server_gone(error: ConnectionClosed) -> bool:
    """Whether the server said, by its close, that another one has to be asked."""
    return error.rcvd is not None and error.rcvd.code == _SERVER_GONE


def waits(grace_s: float) -> Iterator[float]:
    """Seconds to wait before each attempt to reconnect; they add up to `grace_s` at most.

    They grow, and differ between clients that were lost at the same moment.
    """
    wait_s, waited_s = _FIRST_WAIT_S, 0.0
    yield 0.0
    while True:
        this_s = wait_s * random.uniform(0.75, 1.25)
        waited_s += this_s
        if waited_s > grace_s:
            return
        yield this_s
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
