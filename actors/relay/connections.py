"""HTTP/1.1 to one server: h11 on a trio stream, and the connections that are kept between two requests.

Where the server is, the operator has said (`ServerAddress`); no client has a part in it. Read next:
`actors/gateway/http_relay.py`, which relays over these, and `actors/relay/live_connection.py` for
WebSockets.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import sys
from collections import deque
from contextlib import suppress
from typing import Final

import h11
import trio

from ..config.gateway import ServerAddress
from ..fetching.http_get import tls_context
from ..transport.h11_limits import bound_heads

_CONNECT_S: Final = 2.0
_MAX_HEAD_BYTES: Final = 64 * 1024
_RECEIVE_BYTES: Final = 64 * 1024
_LINGER_NONE: Final = struct.pack("ii", 1, 0)
_MAX_KEPT: Final = 64
_KEPT_S: Final = 10.0
"""Less than servers keep one: 30 s here, 15 s behind some load balancers."""
_VANISHED_S: Final = 10.0
"""Without an acknowledgement of what was sent for so long, the server's machine is gone, or the way to it."""

bound_heads()


class ServerGoneError(OSError):
    """The server cannot be reached, broke off, or does not speak HTTP."""

    is_refused = False
    """Its machine answers, and no process listens: nothing of what it had is left."""


class ServerConnection:
    """A connection over which requests are sent, one after the other."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.is_reused = False
        """It has been kept: the server may have closed it as the request was on its way."""
        self.kept_at = 0.0
        self._is_half_closed = False
        self._is_sent = True
        """All of what h11 counts as sent: not where a send was cancelled."""
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def send(self, *events: h11.Event) -> None:
        """Send a request's events. Raises ServerGoneError, and h11.LocalProtocolError for what is no HTTP."""
        data = b"".join(self._http.send(event) or b"" for event in events)
        self._is_sent = False
        try:
            await self.stream.send_all(data)
            self._is_sent = True
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise ServerGoneError("the connection broke") from error

    def event_at_hand(self) -> h11.Event | None:
        """The answer's next event, if it has arrived. Raises ServerGoneError."""
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise ServerGoneError(f"no HTTP: {error}") from error
        if event is h11.NEED_DATA or event is h11.PAUSED:
            return None
        assert isinstance(event, h11.Event)
        return event

    async def next_event(self) -> h11.Event:
        """The answer's next event. Raises ServerGoneError."""
        while (event := self.event_at_hand()) is None:
            try:
                data = await self.stream.receive_some(_RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
                raise ServerGoneError("the connection broke") from error
            try:
                self._http.receive_data(bytes(data))
            except h11.RemoteProtocolError as error:
                raise ServerGoneError(f"no HTTP: {error}") from error
        if isinstance(event, h11.ConnectionClosed):
            raise ServerGoneError("the connection was closed")
        return event

    async def head(self) -> h11.Response:
        """The head of the answer; interim ones are passed over. Raises ServerGoneError."""
        while not isinstance(event := await self.next_event(), h11.Response):
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                raise ServerGoneError("no answer to a request")
        return event

    async def body(self, max_bytes: int) -> bytes:
        """The answer's body, of which no more than so much is kept. Raises ServerGoneError."""
        found = bytearray()
        while isinstance(event := await self.next_event(), h11.Data):
            found += event.data[: max_bytes - len(found)]
        return bytes(found)

    async def half_close(self) -> None:
        """The client sends nothing more, and may have left: tell the server so, but over TLS."""
        self._is_half_closed = True
        if isinstance(self.stream, trio.SocketStream):
            with suppress(trio.BrokenResourceError, trio.BusyResourceError, trio.ClosedResourceError):
                await self.stream.send_eof()

    def next_cycle(self) -> bool:
        """Whether another request may be sent."""
        if self._is_half_closed or not self._is_sent:
            return False
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return not self._http.trailing_data[0]

    def is_quiet(self) -> bool:
        """Whether nothing has come from the server, not even its end: nothing may, between two requests."""
        poll = select.poll()
        poll.register(socket_of(self.stream).fileno(), select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close it at once."""
        socket_of(self.stream).close()

    def reset(self) -> None:
        """Close it in the middle of an answer: the server notices at once, also where it was half-closed."""
        connected = socket_of(self.stream)
        with suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        connected.close()


class Connections:
    """Those of one server."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._kept: deque[ServerConnection] = deque()
        self._tls: ssl.SSLContext | None = None

    async def take(self, *, is_fresh: bool = False) -> ServerConnection:
        """A connection for one request; `is_fresh`: none that was kept. Raises ServerGoneError."""
        while self._kept and not is_fresh:
            kept = self._kept.pop()
            if trio.current_time() - kept.kept_at < _KEPT_S and kept.is_quiet():
                kept.is_reused = True
                return kept
            kept.close()
        return ServerConnection(await self.open())

    def give_back(self, connection: ServerConnection) -> None:
        """The answer has been read to its end: keep the connection, if another request may be sent."""
        connection.kept_at = trio.current_time()
        self._kept.append(connection)
        while len(self._kept) > _MAX_KEPT or (
            self._kept and self._kept[0].kept_at < connection.kept_at - _KEPT_S
        ):
            self._kept.popleft().close()

    def close(self) -> None:
        """Close those that are kept, at once."""
        while self._kept:
            self._kept.pop().close()

    async def open(self) -> trio.abc.Stream:
        """A stream of bytes. Raises ServerGoneError."""
        address = self._address
        stream: trio.abc.Stream | None = None
        try:
            with trio.fail_after(_CONNECT_S):
                stream = plain = await trio.open_tcp_stream(address.host, address.port)
                notice_loss(stream)
                if address.is_tls:
                    self._tls = self._tls or tls_context()
                    secure = trio.SSLStream(
                        plain, self._tls, server_hostname=address.host, https_compatible=True
                    )
                    stream = secure
                    await secure.do_handshake()
                return stream
        except BaseException as error:
            if stream is not None:
                await trio.aclose_forcefully(stream)
            if isinstance(error, OSError | trio.BrokenResourceError | trio.TooSlowError):
                gone = ServerGoneError(f"cannot be reached: {str(error) or 'too slow'}")
                gone.is_refused = is_refused_by_all(error)
                raise gone from error
            raise


def is_refused_by_all(error: BaseException) -> bool:
    """Whether every address of the server refused; trio puts several errors into a group, as a cause."""
    if isinstance(error.__cause__, ExceptionGroup):
        return all(map(is_refused_by_all, error.__cause__.exceptions))
    return isinstance(error, ConnectionRefusedError)


def socket_of(stream: trio.abc.Stream) -> trio.socket.SocketType:
    """The socket of a TCP stream, with TLS or without."""
    plain = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    assert isinstance(plain, trio.SocketStream)
    return plain.socket


def notice_loss(stream: trio.abc.Stream) -> None:
    """Have the kernel find out where the server's machine is gone."""
    connected = socket_of(stream)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, int(_VANISHED_S))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * _VANISHED_S))
