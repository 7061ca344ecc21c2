"""One HTTP request and its answer, as an ASGI application receives the one and sends the other.

The application may answer before the body was read, or never read it; `Exchange.finish` says what then
becomes of the connection. Where the client sends nothing more, that alone says nothing: it may have closed,
or wait for the answer. An interim answer (`100 Continue`, which every client of HTTP/1.1 has to take) tells
the two apart, because the kernel of a client that has closed answers with a reset.
"""

from __future__ import annotations

import http
from email.utils import formatdate
from typing import Any, Final

import h11
import trio

from ...protocols.errors import BadRequestError, SensoriumError
from ...protocols.shared.event_stream import error_body
from ..telemetry.logs import id_headers
from .asgi_scope import body_length
from .h11_limits import bound_heads
from .rate_limit import Allowance
from .tcp_stream import SLICE_BYTES, Wire

BODY_FAULT: Final = "sensorium.body_fault"
"""Key of the scope: called without arguments, it says what of the body is no HTTP, None if nothing was."""
HALF_CLOSED: Final = "sensorium.half_closed"
"""Type of the message that tells an application once that the client sends nothing more."""
_MAX_HEAD_BYTES: Final = 32 * 1024
_MAX_AHEAD_BYTES: Final = SLICE_BYTES
"""Of further requests that are read while one is answered."""
_MAX_DRAIN_BYTES: Final = 1024 * 1024
"""A body up to this long is read to its end after an early answer, for the sake of the connection."""
_DRAIN_S: Final = 5.0
_SMALL_PART_BYTES: Final = 256
_SMALL_PARTS: Final = 2000
_SMALL_PARTS_PER_S: Final = 500
"""Parts of a body in tiny chunks that are read at once, and a second."""
_SMALL_BODY_BYTES: Final = 1024 * 1024
"""So much of every body is read as fast as it comes."""
_BODILESS: Final = frozenset({204, 304})

bound_heads()

Headers = list[tuple[bytes, bytes]]


class Link:
    """h11's connection over a wire."""

    def __init__(self, wire: Wire, large_bodies: Allowance) -> None:
        """`large_bodies`: bytes that all connections together may send in them."""
        self.wire = wire
        self.large_bodies = large_bodies
        self.h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def next_event(self) -> h11.Event | type[h11.PAUSED]:
        """The client's next event. Raises h11.RemoteProtocolError and BrokenResourceError."""
        while True:
            event = self.h11.next_event()
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]  # h11's sentinels are types that mypy cannot narrow
            self.h11.receive_data(await self.wire.receive())

    async def send(self, event: h11.Event) -> None:
        """Send one of ours. Raises h11.LocalProtocolError and BrokenResourceError."""
        self.write(event)
        await self.wire.flush()

    def write(self, event: h11.Event) -> None:
        """Have it sent with the next one."""
        data = self.h11.send(event)
        if data:
            self.wire.write(data)


class Exchange:
    """ASGI's `receive` and `send` for one request."""

    def __init__(self, link: Link, request: h11.Request, *, is_last: bool) -> None:
        """`is_last`: the connection takes no other request after this one."""
        self._link = link
        self._is_last = is_last
        self._is_head = request.method == b"HEAD"
        self._takes_interim = request.http_version >= b"1.1"
        self._length = body_length(request)
        self._num_received = 0
        self._num_ahead = 0
        self._small_parts = Allowance(burst=_SMALL_PARTS, per_s=_SMALL_PARTS_PER_S)
        self._has_reported_end = False
        self.is_body_read = False
        self._fault: h11.RemoteProtocolError | None = None
        self.status = 0
        """Of the answer, 0 while it has not begun."""
        self.is_complete = False
        """The answer has been given."""

    async def receive(self) -> dict[str, Any]:
        """The next part of the body; after its end `http.disconnect`, once the client has left."""
        if not self.is_body_read:
            return await self._body_part()
        if not self.is_complete and not self._has_reported_end:
            await self._wait_end()
            if not self._link.wire.is_broken:
                return {"type": HALF_CLOSED}
        if not self.is_complete:
            await self._link.wire.wait_left()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """Send the head or a part of the answer; nothing happens where the client has left."""
        if self._link.wire.is_broken:
            await trio.lowlevel.checkpoint()
        elif message["type"] == "http.response.start":
            self._begin(message["status"], list(message.get("headers", ())))
        else:
            try:
                await self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))
            except trio.BrokenResourceError:
                return

    async def finish(self) -> bool:
        """Read what is left of a small body; whether the connection is ready for another request."""
        state = self._link.h11
        if state.our_state is not h11.DONE:
            return False
        with trio.move_on_after(_DRAIN_S):
            try:
                while state.their_state is h11.SEND_BODY:
                    await self._small_parts.earn()
                    await self._link.next_event()
                    self._small_parts.spend(1)
            except (h11.RemoteProtocolError, trio.BrokenResourceError):
                return False
        if state.their_state is not h11.DONE:
            return False
        state.start_next_cycle()
        return True

    async def refuse(
        self,
        error: SensoriumError,
        status: int | None = None,
        *more: tuple[bytes, bytes],
        request_id: str | None = None,
    ) -> None:
        """Answer with an error of the protocol's own, in the one error shape."""
        body = error_body(error)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *more]
        if request_id is not None:
            headers += id_headers(request_id)
        await self.send({"type": "http.response.start", "status": status or error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def body_fault(self) -> BadRequestError | None:
        """What the client is told where its body is not what the protocol wants."""
        if self._fault is None:
            return None
        return BadRequestError(f"The body is not HTTP/1.1: {h11_reason(self._fault)}.", code="invalid_body")

    async def _body_part(self) -> dict[str, Any]:
        await self._small_parts.earn()
        link = self._link
        if self._num_received > _SMALL_BODY_BYTES:
            await link.large_bodies.earn()
        try:
            if link.h11.they_are_waiting_for_100_continue:
                await link.send(_interim())
            event = await link.next_event()
        except (h11.RemoteProtocolError, trio.BrokenResourceError) as error:
            self.is_body_read = True
            self._has_reported_end = True
            if isinstance(error, h11.RemoteProtocolError):
                self._fault = error.with_traceback(None)  # whose frames hold this exchange
            return {"type": "http.disconnect"}
        if isinstance(event, h11.Data):
            self._num_received += len(event.data)
            if len(event.data) < _SMALL_PART_BYTES:
                self._small_parts.spend(1)
            if self._num_received > _SMALL_BODY_BYTES:
                link.large_bodies.spend(len(event.data))
            return {"type": "http.request", "body": bytes(event.data), "more_body": True}
        self.is_body_read = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _wait_end(self) -> None:
        """Return when the client sends nothing more, or more than we read ahead."""
        link = self._link
        try:
            while not link.wire.has_ended and self._num_ahead < _MAX_AHEAD_BYTES:
                data = await link.wire.receive()
                link.h11.receive_data(data)
                self._num_ahead += len(data)
            self._has_reported_end = True
            if link.wire.has_ended and self._takes_interim and link.h11.our_state is h11.SEND_RESPONSE:
                await link.send(_interim())
        except trio.BrokenResourceError:
            return

    def _begin(self, status: int, headers: Headers) -> None:
        headers.append((b"date", formatdate(usegmt=True).encode()))
        if not self._may_go_on():
            headers.append((b"connection", b"close"))
        self._link.write(h11.Response(status_code=status, headers=headers, reason=_phrase(status)))
        self.status = status

    def _may_go_on(self) -> bool:
        """Whether the connection is worth keeping: the rest of the body is little, and surely comes."""
        if self._is_last or self._fault is not None:
            return False
        if self.is_body_read:
            return True
        if self._length is None or self._link.h11.they_are_waiting_for_100_continue:
            return False
        return self._length - self._num_received <= _MAX_DRAIN_BYTES

    async def _send_body(self, data: bytes, *, is_last: bool) -> None:
        if data and not self._is_head and self.status not in _BODILESS:
            self._link.write(h11.Data(data=data))
        if is_last:
            self._link.write(h11.EndOfMessage())
            self.is_complete = True
        await self._link.wire.flush()


def h11_reason(error: h11.RemoteProtocolError) -> str:
    """What is no HTTP, without the bytes that h11 shows behind it."""
    return str(error).partition(": bytearray(")[0]


def _interim() -> h11.InformationalResponse:
    return h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")


def _phrase(status: int) -> bytes:
    try:
        return http.HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
