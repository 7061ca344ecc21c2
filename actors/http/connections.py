"""TCP connections under the HTTP server: hypercorn speaks the protocols, this file contains their failures.

Hypercorn's trio worker would let one connection's exception end the server, and its sends are shielded from
cancellation, so that a client that stops reading would hold its session for ever. Here every connection is
caught by itself, and every send has a deadline after which the connection is cut. `actors/server.py` calls
`serve_connections`; the application above knows nothing of this.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import logging
import socket
import struct
import sys
import termios
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.protocol import h2, h11, ws_stream
from hypercorn.protocol.events import StreamClosed
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.utils import wrap_app
from wsproto.connection import Connection
from wsproto.events import CloseConnection, Event, Message

logger = logging.getLogger(__name__)

_LINGER_NONE: Final = struct.pack("ii", 1, 0)
_BACKLOG: Final = 512
_SLICE_BYTES: Final = 64 * 1024
"""Sent in one call."""
_ABNORMAL: Final = 1006
"""What stands for a close code where the client gave none."""
_AFTER_CLOSE_S: Final = 2.0
"""How long the application may still work for a connection that has been closed."""
_PING_INTERVAL_S: Final = 20.0
_VANISHED_S: Final = 30.0
"""How long the peer's machine may leave what we sent without an acknowledgement, be it a ping: then it is
gone, or the way to it. Else the kernel would try for a quarter of an hour."""
_QUEUED_MESSAGES: Final = 2
"""Messages, each of the largest size, that hypercorn holds where the application does not read."""

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


class TimedStream:
    """A `trio.SocketStream` whose sends give up: after `send_timeout_s` in which the peer took nothing the
    connection is reset."""

    def __init__(self, stream: trio.SocketStream, *, send_timeout_s: float) -> None:
        self._stream = stream
        self._send_timeout_s = send_timeout_s
        self.socket = stream.socket
        self.closed = trio.Event()
        """Closed by either side, or broken."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Bytes from the peer, empty at its end of stream."""
        try:
            data = await self._stream.receive_some(max_bytes)
        except trio.BrokenResourceError:
            self.closed.set()
            raise
        if not data:
            self.closed.set()
        return data

    async def send_all(self, data: bytes) -> None:
        """Send, or reset the connection and raise `BrokenResourceError` if the peer does not read."""
        left = memoryview(data)
        try:
            while left:
                left = left[await self._send_some(left[:_SLICE_BYTES]) :]
        except OSError as error:
            self.closed.set()
            raise trio.BrokenResourceError("the connection is broken") from error

    async def _send_some(self, part: memoryview) -> int:
        """Bytes of `part` that were sent, at least one. Slow as the peer may be, only a standstill counts."""
        unread = self._num_unread()
        while True:
            with trio.move_on_after(self._send_timeout_s):
                return await self.socket.send(part)
            before, unread = unread, self._num_unread()
            if unread >= before:
                break
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        await self.aclose()
        raise trio.BrokenResourceError("the peer does not read")

    def _num_unread(self) -> int:
        """Bytes sent that the peer's machine has not taken yet. The kernel lets us send again only when much
        of them has gone, for which a slow reader may need longer than the timeout."""
        if sys.platform != "linux":
            return 0
        return int.from_bytes(fcntl.ioctl(self.socket.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    async def send_eof(self) -> None:
        """Tell the peer that nothing more comes."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close the connection."""
        self.closed.set()
        await self._stream.aclose()


class _BoundedBuffer(ws_stream.WebsocketBuffer):  # type: ignore[misc]  # hypercorn is untyped here
    """Hypercorn's message buffer, but once a message is too large it keeps none of the rest."""

    length: int
    max_length: int
    _is_refusing = False

    def extend(self, event: Message[str] | Message[bytes | bytearray]) -> None:
        if self._is_refusing:
            return  # raising again would make hypercorn skip events, the client's close among them
        if self.length + len(event.data) > self.max_length:
            self._is_refusing = True
            self.value = None
            raise ws_stream.FrameTooLargeError
        super().extend(event)


class _Connection(Connection):
    """wsproto's connection, but it remembers with which code the client closed."""

    close_code: int | None = None

    def events(self) -> Generator[Event, None, None]:
        for event in super().events():
            if isinstance(event, CloseConnection):
                self.close_code = event.code
            yield event


class _Stream(ws_stream.WSStream):  # type: ignore[misc]  # hypercorn is untyped here
    """Hypercorn's WebSocket, but the application is told the client's own close code."""

    app_put: Callable[[dict[str, Any]], Awaitable[None]] | None

    async def handle(self, event: object) -> None:
        connection = getattr(self, "connection", None)  # absent until the handshake
        if isinstance(event, StreamClosed) and self.app_put and isinstance(connection, _Connection):
            self.app_put = partial(_put_close_code, self.app_put, connection)
        await super().handle(event)


async def _put_close_code(
    put: Callable[[dict[str, Any]], Awaitable[None]], connection: _Connection, message: dict[str, Any]
) -> None:
    await put({**message, "code": connection.close_code or _ABNORMAL})


def _no_extensions(*_: object) -> None:
    """Accept no WebSocket extension.

    With permessage-deflate one read of 64 KiB may hold 64 MiB, which wsproto unpacks before any limit is
    looked at; and audio does not deflate.
    """


_REPLACED: Final[tuple[tuple[Any, str, object], ...]] = (
    (ws_stream, "WebsocketBuffer", _BoundedBuffer),
    (ws_stream, "Connection", _Connection),
    (ws_stream, "server_extensions_handshake", _no_extensions),
    (h11, "WSStream", _Stream),
    (h2, "WSStream", _Stream),
)
"""What hypercorn finds by these names it shall find here."""


def _replace(owner: Any, name: str, ours: object) -> None:  # noqa: ANN401 (modules, and hypercorn's config)
    """Assignment would also succeed for a name that nobody looks up any more, and guard nothing."""
    if not hasattr(owner, name):
        where = getattr(owner, "__name__", type(owner).__name__)
        version = importlib.metadata.version("hypercorn")
        raise RuntimeError(f"hypercorn {version} has no {where}.{name}, by which connections are guarded")
    setattr(owner, name, ours)


def open_listener(host: str, port: int, *, send_timeout_s: float = 0.0) -> socket.socket:
    """A listening TCP socket; `OSError` if the address is taken or not ours.

    Its options are also those of its connections. Those are broken when the peer vanishes, but not before the
    `send_timeout_s` that it has to read what we send.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":
            limit_ms = min(round(1000 * max(_VANISHED_S, send_timeout_s)), 2**31 - 1)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


async def _cancel_after_close(stream: TimedStream, scope: trio.CancelScope) -> None:
    """End what is still done for a closed connection.

    Hypercorn hands input to the application through a bounded queue, and waits for ever where the
    application has returned without emptying it. It also keeps the socket of a client that has gone until
    its next ping is due.
    """
    await stream.closed.wait()
    await trio.sleep(_AFTER_CLOSE_S)
    scope.cancel()


def guarded(max_message_bytes: int) -> Config:
    """Hypercorn's configuration, and our parts in place of its own.

    Raises RuntimeError for a hypercorn that has no such names: what this file promises would not hold.
    """
    config = Config()
    options = {
        "accesslog": None,
        "errorlog": None,
        "include_server_header": False,
        "websocket_max_message_size": max_message_bytes,
        "websocket_ping_interval": _PING_INTERVAL_S,
        "max_app_queue_size": _QUEUED_MESSAGES,
        "keep_alive_timeout": 30.0,
        "h2_max_inbound_frame_size": 2**20,
    }
    for name, value in options.items():
        _replace(config, name, value)
    for module, name, ours in _REPLACED:
        _replace(module, name, ours)
    return config


async def serve_connections(
    app: AsgiApp,
    listener: socket.socket,
    *,
    max_message_bytes: int,
    send_timeout_s: float,
    stop: trio.Event,
    grace_s: float,
) -> None:
    """Serve HTTP/1.1, HTTP/2 and WebSockets until `stop`; then connections have `grace_s` to end.

    Takes over `listener`. Cancelling closes every connection at once. Raises as `guarded` does.
    """
    config = guarded(max_message_bytes)
    context = WorkerContext(None)
    wrapped = wrap_app(app, config.wsgi_max_body_size, "asgi")

    async def handle(stream: trio.SocketStream) -> None:
        timed = TimedStream(stream, send_timeout_s=send_timeout_s)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after_close, timed, nursery.cancel_scope)
                await TCPServer(wrapped, config, context, {}, timed).run()
                nursery.cancel_scope.cancel()
        except Exception:
            logger.exception("a connection failed; it was closed, the others go on")
            await stream.aclose()

    async with trio.open_nursery() as connections, trio.open_nursery() as accepting:
        listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listener))]
        accepting.start_soon(partial(trio.serve_listeners, handle, listeners, handler_nursery=connections))
        await stop.wait()
        accepting.cancel_scope.cancel()
        await context.terminated.set()
        connections.cancel_scope.deadline = trio.current_time() + grace_s
