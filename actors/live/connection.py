"""One WebSocket while it carries a session: a reader, a writer with its outbox, and the goodbye.

A line ends with its socket; the session (`actors/live/session.py`) may go on without it, and be put on
another one. The reader does not wait for the engine, so pings are answered and the client's end is noticed
whatever that does: frames that the session has no room for yet wait here, and only past `MAX_WAITING_BYTES`
of them is the socket left alone. What becomes of a session whose line has ended is said in
`actors/live/registry.py`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from uuid import uuid4

import trio

from ...protocols.errors import SensoriumError
from ...protocols.realtime.codec import encode_event
from ...protocols.realtime.events import Error
from ...protocols.realtime.lifecycle import SessionResume
from ...realtime.outgoing import error_detail
from ..callers import ANONYMOUS, Caller
from .outbox import Outbox, SlowReaderError
from .session import SessionActor

CLOSE_WAIT_S: Final = 2.0
"""How long the client may take to answer our close, so that it reads what we said before."""
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Memory of the frames that wait for the session: 6 min of 16 kHz PCM16 in base64, besides its backlog."""


class Socket(Protocol):
    """What a line needs of a WebSocket."""

    @property
    def closed_cleanly(self) -> bool:
        """The client has gone, and on purpose or with an answer to our close: it will not come back."""
        ...

    @property
    def went_away(self) -> bool:
        """A page was left, or a proxy begins anew: who comes back then does so at once."""
        ...

    async def receive(self) -> str | bytes | None:
        """The next message; None when the client has gone."""
        ...

    async def send(self, frame: str) -> None:
        """Send a text frame."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Start the closing handshake."""
        ...


RelayOf = Callable[[SessionResume], "Callable[[Line], Awaitable[None]] | None"]
"""What carries a line on to the server that has the session which is to be resumed; None: this one may."""


class Line:
    """Carries `session` until the socket ends; it changes when the client resumes another one.

    None: there is no session (yet); what is in the outbox is sent all the same, and what comes is dropped.
    """

    def __init__(
        self,
        socket: Socket,
        outbox: Outbox,
        session: SessionActor | None,
        *,
        caller: Caller = ANONYMOUS,
        relay_of: RelayOf = lambda _: None,
    ) -> None:
        """`relay_of` says which sessions another server has."""
        self._socket = socket
        self.relay_of = relay_of
        self.caller = caller
        self.outbox = outbox
        self.session = session
        self._waiting: deque[str | bytes] = deque()
        """Frames that were read and not taken in; the first one may be just being taken."""
        self._num_waiting_bytes = 0
        self._changed = trio.lowlevel.ParkingLot()
        """A frame began or ceased to wait."""
        self.closed_cleanly = False
        """The client left on purpose, or answered our close: it has read all that there was to say."""
        self.went_away = False
        """See `Socket`."""

    async def run(self, resume: Callable[[SessionResume, Line], Awaitable[None]]) -> None:
        """Serve the socket to its end. `resume` puts another session on this line; it never raises."""
        async with trio.open_nursery() as tasks:
            tasks.start_soon(self._read, resume, tasks.cancel_scope)
            tasks.start_soon(self._feed, resume)
            tasks.start_soon(self._watch)
            await self.outbox.run(self._socket.send, self._socket.close)
            # The reader goes on: unread input would keep our last words from arriving.
            await trio.sleep(CLOSE_WAIT_S)
            tasks.cancel_scope.cancel()

    async def _read(
        self, resume: Callable[[SessionResume, Line], Awaitable[None]], scope: trio.CancelScope
    ) -> None:
        """Socket → session, until the client leaves."""
        while (frame := await self._socket.receive()) is not None:
            if self._waiting or (self.session is not None and self.session.is_ahead):
                await self._wait_in_line(frame)
            else:
                await self._take(frame, resume)
            del frame  # it may be large, and the next one late
        self.closed_cleanly, self.went_away = self._socket.closed_cleanly, self._socket.went_away
        scope.cancel()

    async def _wait_in_line(self, frame: str | bytes) -> None:
        """Put a frame behind those that wait, once there is room."""
        while self._num_waiting_bytes > MAX_WAITING_BYTES:
            await self._changed.park()
        self._waiting.append(frame)
        self._num_waiting_bytes += sys.getsizeof(frame)
        self._changed.unpark_all()

    async def _feed(self, resume: Callable[[SessionResume, Line], Awaitable[None]]) -> None:
        """Waiting frames → session, as it finds room for them."""
        while True:
            while not self._waiting:
                await self._changed.park()
            if self.session is not None:
                await self.session.keep_pace()
            await self._take(self._waiting[0], resume)
            self._num_waiting_bytes -= sys.getsizeof(self._waiting.popleft())
            self._changed.unpark_all()

    async def _take(
        self, frame: str | bytes, resume: Callable[[SessionResume, Line], Awaitable[None]]
    ) -> None:
        resumption = None if self.session is None else await self.session.take(frame, self)
        if resumption is not None:
            await resume(resumption, self)

    async def _watch(self) -> None:
        try:
            await self.outbox.watch()
        except SlowReaderError as error:
            if self.session is not None:
                self.session.give_up(self, error)
            self.outbox.close(1008, str(error), drop=True)


def refusal(error: SensoriumError, *, resumption: SessionResume | None = None) -> str:
    """The one error event of a session that does not begin, or is not resumed, as was its `wish`."""
    detail = error_detail(error, None if resumption is None else resumption.event_id or None)
    event_id = f"event_{uuid4().hex[:24]}"
    return encode_event(
        Error(event_id=event_id, server_event_seq=1 if resumption is None else 0, error=detail)
    )
