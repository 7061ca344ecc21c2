"""Connections to a small ASGI application over real sockets, byte for byte."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h11
import trio
from sensorium.actors.transport.connection_limits import ConnectionLimits, Guard
from sensorium.actors.transport.listener import open_listener, serve_connections
from sensorium.actors.transport.refusals import Refusal, Refusals
from sensorium.actors.transport.trusted_proxies import TrustedProxies
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

LIMITS = ConnectionLimits(max_connections=64, max_per_address=64, idle_s=30.0)
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
WAIT_S = 60.0


def h11_request(head: bytes) -> h11.Request:
    """What the server reads of a request's head, without its last line."""
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(head + b"\r\n")
    request = parser.next_event()
    assert isinstance(request, h11.Request)
    return request


@dataclass
class Echo:
    """Answers with what it is sent. Paths under `/early` are answered before the body is read."""

    left: trio.Event = field(default_factory=trio.Event)
    """A client of `/wait` has left."""
    waiting: trio.Event = field(default_factory=trio.Event)
    go_on: trio.Event = field(default_factory=trio.Event)
    close_codes: list[int] = field(default_factory=list)
    scopes: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await self._talk(receive, send)
            return
        match scope["path"]:
            case "/early" | "/health":
                await answer(send, 200 if scope["path"] == "/health" else 401, b"no")
            case "/fail":
                raise RuntimeError("a defect")
            case "/half":
                await send(start(200, (b"content-length", b"10")))
                await send({"type": "http.response.body", "body": b"half", "more_body": True})
                raise RuntimeError("a defect midway")
            case "/stream":
                await read(receive)
                await send(start(200))
                for part in (b"one ", b"two"):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            case "/wait":
                await read(receive)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch, receive, nursery.cancel_scope)
                    self.waiting.set()
                    await self.go_on.wait()
                    await answer(send, 200, b"at last")
                    nursery.cancel_scope.cancel()
            case _:
                body = await read(receive)
                if body is not None:
                    await answer(send, 200, body)

    async def _watch(self, receive: Callable[[], Awaitable[Any]], scope: trio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()
        scope.cancel()

    async def _talk(
        self, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            with suppress(OSError):  # it has gone already
                await send({**message, "type": "websocket.send"})
        self.close_codes.append(message["code"])


def start(status: int, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    """The head of an answer."""
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


async def answer(send: Callable[[Any], Awaitable[None]], status: int, body: bytes) -> None:
    """A whole answer."""
    await send(start(status, (b"content-length", str(len(body)).encode())))
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def read(receive: Callable[[], Awaitable[Any]]) -> bytes | None:
    """The whole body; None if the client left."""
    parts = []
    while (message := await receive())["type"] == "http.request":
        parts.append(message["body"])
        if not message["more_body"]:
            return b"".join(parts)
    return None


@dataclass
class Served:
    """A running server."""

    port: int
    guard: Guard
    app: Echo
    refusals: Refusals
    reported: list[tuple[Refusal, int]]


@asynccontextmanager
async def serving(
    limits: ConnectionLimits = LIMITS,
    *,
    max_message_bytes: int = 100_000,
    grace_s: float = 1.0,
    proxies: TrustedProxies | None = None,
) -> AsyncIterator[Served]:
    """A server of `Echo`; at the end no connection is left."""
    listener = open_listener("127.0.0.1", 0)
    reported: list[tuple[Refusal, int]] = []
    refusals = Refusals(lambda refusal, num_unreported: reported.append((refusal, num_unreported)))
    found = Served(listener.getsockname()[1], Guard(limits), Echo(), refusals, reported)
    stop = trio.Event()

    async def serve() -> None:
        await serve_connections(
            found.app,
            listener,
            guard=found.guard,
            max_message_bytes=max_message_bytes,
            send_timeout_s=5.0,
            stop=stop,
            grace_s=grace_s,
            refusals=found.refusals,
            proxies=proxies,
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield found
        stop.set()
    assert (found.guard.statistics.num_open, found.guard.statistics.num_idle) == (0, 0)


@dataclass
class Answer:
    """What was answered."""

    status: int
    headers: dict[str, str]
    body: bytes
    interim: list[int]


class Peer:
    """One client's connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    async def send(self, data: bytes) -> None:
        """Bytes as they are."""
        await self.stream.send_all(data)

    async def request(self, head: str, body: bytes = b"", *, length: int | None = None) -> Answer:
        """Send a request line (and more headers) with its body, and read the answer."""
        announced = len(body) if length is None else length
        more = f"content-length: {announced}\r\n" if announced else ""
        await self.send(f"{head}\r\nhost: x\r\n{more}\r\n".encode() + body)
        return await self.answer(is_head=head.startswith("HEAD"))

    async def answer(self, *, is_head: bool = False) -> Answer:
        """The next answer, interim ones beside it. Raises trio.TooSlowError."""
        parser = h11.Connection(h11.CLIENT)
        parser.send(h11.Request(method="HEAD" if is_head else "GET", target="/", headers=[("host", "x")]))
        parser.send(h11.EndOfMessage())
        found, interim, body = None, [], b""
        if self._buffer:
            parser.receive_data(self._buffer)
        with trio.fail_after(WAIT_S):
            while True:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    parser.receive_data(await self.stream.receive_some())
                elif isinstance(event, h11.InformationalResponse):
                    interim.append(event.status_code)
                elif isinstance(event, h11.Response):
                    found = event
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    break
                else:
                    raise AssertionError(event)
        self._buffer = parser.trailing_data[0]
        assert found is not None
        headers = {bytes(name).decode(): bytes(value).decode() for name, value in found.headers}
        return Answer(found.status_code, headers, body, interim)

    async def is_closed(self) -> bool:
        """Whether the server ends the connection (in good order), sending nothing more."""
        with trio.fail_after(WAIT_S):
            return self._buffer + await self.stream.receive_some() == b""

    async def upgrade(self, more: bytes = b"") -> Answer:
        """Open a WebSocket."""
        await self.send(HANDSHAKE + more + b"\r\n")
        head = b""
        with trio.fail_after(WAIT_S):
            while b"\r\n\r\n" not in head:
                head += await self.stream.receive_some()
        assert head.startswith(b"HTTP/1.1 101"), head
        return Answer(101, {}, head, [])

    async def messages(
        self, data: bytes, *, close_after: int | None = None
    ) -> tuple[list[Frame], int | None]:
        """Send bytes; every frame up to the end of the connection, and the server's close code.

        `close_after`: so many frames a close is sent.
        """
        protocol = Protocol(Side.CLIENT, max_size=None)
        frames: list[Frame] = []

        async def send() -> None:
            try:
                await self.send(data)
            except trio.BrokenResourceError:
                return

        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                async for part in self.stream:
                    protocol.receive_data(part)
                    frames += [each for each in protocol.events_received() if isinstance(each, Frame)]
                    if len(frames) == close_after:
                        await self.send(close())
        code = None if protocol.close_rcvd is None else protocol.close_rcvd.code
        return [each for each in frames if each.opcode is not Opcode.CLOSE], code


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    """A connection to the server."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        yield Peer(stream)


def frame(
    opcode: int, data: bytes = b"", *, fin: bool = True, reserved: int = 0, masked: bool = True
) -> bytes:
    """One frame, masked with zeros."""
    first = (0x80 if fin else 0) | reserved << 4 | opcode
    mask = 0x80 if masked else 0
    if len(data) < 126:
        head = bytes([first, mask | len(data)])
    elif len(data) < 65_536:
        head = bytes([first, mask | 126]) + len(data).to_bytes(2)
    else:
        head = bytes([first, mask | 127]) + len(data).to_bytes(8)
    return head + (bytes(4) if masked else b"") + data


def close(code: int | None = 1000, reason: bytes = b"") -> bytes:
    """A close frame."""
    return frame(8, b"" if code is None else code.to_bytes(2) + reason)
