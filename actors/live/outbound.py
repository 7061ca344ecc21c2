"""What one session says: to the client on its line, if there is one, and kept for a client that was lost.

Every event of the first dialect is kept for a while (`realtime/replay.py`), so that a client whose socket
was lost can go on where it was. Knows frames and lines, not what they are about. Used by
`actors/live/session.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

import trio

from ...protocols.errors import InternalError
from ...protocols.realtime.codec import encode_event
from ...protocols.realtime.events import Error, ErrorDetail, ServerEvent
from ...protocols.realtime.lifecycle import SessionResumed
from ...protocols.realtime.vllm_events import FlatServerEvent
from ...realtime.replay import Replay
from .outbox import Outbox, SlowReaderError
from .session_metrics import SessionMeter

logger = logging.getLogger(__name__)

TOO_SLOW: Final = "the client reads too slowly"


class Carrier(Protocol):
    """What a session's way out knows of the line to its client (`actors/live/connection.py`)."""

    outbox: Outbox


class Delivery:
    """The way out of a session; `line` is where its client is."""

    def __init__(
        self, session_id: str, replay: Replay, meter: SessionMeter, new_id: Callable[[str], str]
    ) -> None:
        self.line: Carrier | None = None
        self.closing: tuple[int, str] | None = None
        """Code and reason of the close, once the session has ended by itself."""
        self._session_id = session_id
        self._replay = replay
        self._meter = meter
        self._new_id = new_id

    @property
    def is_lost(self) -> bool:
        """Something was said that no client can be told any more."""
        return not self._replay.intact

    @property
    def last_seq(self) -> int:
        """Number of the newest event that is kept."""
        return self._replay.last_seq

    async def room(self) -> None:
        """Wait while much is on its way to the client: who asks for many large items at once gets them one
        after the other. Where nothing is read the line ends (`Outbox.watch`), and the waiting with it."""
        if self.line is not None:
            await self.line.outbox.room()

    def send(self, event: ServerEvent, instead: tuple[FlatServerEvent, ...] | None = None) -> None:
        """Say one event, or what stands for it in the flat dialect. Raises SlowReaderError."""
        self._meter.sent(event, now=trio.current_time())
        frames = [encode_event(each) for each in ((event,) if instead is None else instead)]
        if instead is None:
            self._replay.record(frames[0])
        if self.line is not None:
            for frame in frames:
                self.line.outbox.put(frame)

    def close(self, code: int, reason: str, *, drop: bool = False) -> None:
        """End the line behind what was said (`drop`: at once). The first call decides."""
        self.closing = self.closing or (code, reason)
        if self.line is not None:
            self.line.outbox.close(code, reason, drop=drop)

    def give_up(self, error: SlowReaderError) -> None:
        """The client does not read."""
        logger.info("session %s: %s; closed", self._session_id, error)
        self.close(1008, TOO_SLOW, drop=True)

    def fail(self, words: Callable[[ServerEvent], tuple[FlatServerEvent, ...] | None]) -> None:
        """The session's own code broke: say so in its dialect (`words`), then close."""
        error = Error(
            event_id=self._new_id("event"),
            server_event_seq=self.last_seq + 1,
            error=ErrorDetail(
                type=InternalError.type, code=InternalError.default_code, message="the session failed"
            ),
        )
        with suppress(SlowReaderError):
            self.send(error, words(error))
        self.close(1011, "the session failed")

    def detach(self) -> None:
        """The line has ended: from here on events wait."""
        self.line = None
        self._replay.detach()

    def since(self, after_seq: int) -> Sequence[str]:
        """The frames after that event, for a client that then gets the following ones. Raises ClientError."""
        return self._replay.since(after_seq)

    def leave_line(self) -> None:
        """The client goes on on another line: this one closes."""
        if self.line is not None:
            self.line.outbox.close(1008, "the session was resumed on another connection", drop=True)

    def move(self, line: Carrier, resumed: SessionResumed, frames: Sequence[str]) -> None:
        """Go on on another line, and tell it what it missed; the old one closes. Raises SlowReaderError."""
        self.leave_line()
        self._replay.attach()
        self.line = line
        for frame in (encode_event(resumed), *frames):
            line.outbox.put(frame)
        if self.closing is not None:
            line.outbox.close(*self.closing)
