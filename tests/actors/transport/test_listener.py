"""Connections under the server: one that fails, stalls or leaves costs nobody else, and not for long."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from sensorium.actors.transport.connection_limits import ConnectionLimits, Guard
from sensorium.actors.transport.listener import open_listener, serve_connections
from sensorium.actors.transport.tcp_stream import Wire
from sensorium.actors.transport.websocket import AsgiApp
from starlette.types import Receive, Scope, Send

pytestmark = pytest.mark.slow

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
)

LIMITS = ConnectionLimits(max_connections=8, max_per_address=8, idle_s=30.0)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers requests with nothing, and messages with themselves."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


@asynccontextmanager
async def serving(
    guard: Guard | None = None, *, app: AsgiApp = echo, host: str = "127.0.0.1", num_gone: int = 0
) -> AsyncIterator[int]:
    """The port of a server, which so many have connected to and left before it looks."""
    listener = open_listener(host, 0)
    port: int = listener.getsockname()[1]
    stop = trio.Event()
    for _ in range(num_gone):
        socket.create_connection(("127.0.0.1", port)).close()

    async def serve() -> None:
        await serve_connections(
            app,
            listener,
            guard=guard or Guard(LIMITS),
            max_message_bytes=1000,
            send_timeout_s=5.0,
            stop=stop,
            grace_s=1.0,
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield port
        stop.set()


async def websocket(port: int) -> trio.SocketStream:
    """A connection after its handshake."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    await stream.send_all(HANDSHAKE)
    head = b""
    while b"\r\n\r\n" not in head:
        head += await stream.receive_some()
    assert head.startswith(b"HTTP/1.1 101")
    # What was offered is not taken: a small compressed frame could hold anything.
    assert b"sec-websocket-extensions" not in head.lower()
    return stream


async def receive_all(stream: trio.SocketStream) -> bytes:
    """Everything up to the end of the stream."""
    return b"".join([bytes(data) async for data in stream])


async def test_messages_go_through() -> None:
    async with serving() as port:
        stream = await websocket(port)
        await stream.send_all(b"\x81\x82\0\0\0\0hi")
        data = b""
        with trio.fail_after(5):
            while not data.endswith(b"\x81\x02hi"):
                data += await stream.receive_some()
        await stream.aclose()


async def test_a_compressed_frame_ends_the_connection() -> None:
    async with serving() as port:
        stream = await websocket(port)
        await stream.send_all(b"\xc1\x82\0\0\0\0hi")
        with trio.fail_after(5):
            assert b"hi" not in await receive_all(stream)
        await stream.aclose()


@pytest.mark.parametrize("is_cut", [False, True])
async def test_the_socket_of_a_client_that_left_is_not_kept(is_cut: bool) -> None:
    async with serving() as port:
        stream = await websocket(port)
        # Our end stays open for reading, to see when theirs is closed.
        await stream.send_all(b"\x88\x80\0\0\0\0" if not is_cut else b"\x81")
        stream.socket.shutdown(socket.SHUT_WR)
        with trio.fail_after(5):
            await receive_all(stream)
        await stream.aclose()


@dataclass
class Sending:
    """A body on its way to `peer`, which decides how fast it reads."""

    peer: trio.SocketStream
    ended: trio.Event = field(default_factory=trio.Event)
    is_cut: bool = False


@asynccontextmanager
async def sending(data: bytes, *, send_timeout_s: float) -> AsyncIterator[Sending]:
    listener = open_listener("127.0.0.1", 0)
    peer = trio.socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    with listener:
        await peer.connect(listener.getsockname())
        accepted = trio.socket.from_stdlib_socket(listener.accept()[0])
    wire = Wire(accepted, send_timeout_s=send_timeout_s)

    async def send() -> None:
        wire.write(data)
        try:
            await wire.flush()
        except trio.BrokenResourceError:
            found.is_cut = True
        wire.close()
        found.ended.set()

    async with trio.SocketStream(peer) as found_peer, trio.open_nursery() as nursery:
        found = Sending(found_peer)
        nursery.start_soon(send)
        yield found


async def test_a_slow_reader_that_goes_on_reading_is_not_cut() -> None:
    data = bytes(range(256)) * (8 * 4096)
    async with sending(data, send_timeout_s=0.3) as body:
        received = bytearray()
        while part := await body.peer.receive_some(len(data) // 40):
            received += part
            await trio.sleep(0.05)
    assert not body.is_cut
    assert received == data


async def test_a_reader_that_stops_is_cut() -> None:
    async with sending(bytes(64 * 1024 * 1024), send_timeout_s=0.3) as body:
        await body.peer.receive_some(1000)
        with trio.fail_after(10):
            await body.ended.wait()
        assert body.is_cut
        with pytest.raises(trio.BrokenResourceError):
            await receive_all(body.peer)


async def test_whoever_waits_for_a_client_that_was_cut_waits_no_more() -> None:
    """As a stream's watcher does when its writer has given the client up."""
    one, other = socket.socketpair()
    with other:
        wire = Wire(trio.socket.from_stdlib_socket(one), send_timeout_s=1.0)
        wire.reset()
        with trio.fail_after(60):
            await wire.wait_left()


async def test_an_idle_connection_does_not_delay_the_end() -> None:
    started = trio.current_time()
    async with serving() as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await trio.sleep(0.1)
    assert trio.current_time() - started < 3
    await stream.aclose()


async def test_a_peer_that_vanished_is_noticed_by_the_kernel() -> None:
    """Nothing is acknowledged any more: one machine cannot act that out, so this looks at the option."""
    for send_timeout_s, expected_ms in ((5.0, 30_000), (90.0, 90_000), (1e9, 2**31 - 1)):
        listener = open_listener("127.0.0.1", 0, send_timeout_s=send_timeout_s)
        with listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == expected_ms


async def test_who_left_before_we_looked_takes_no_place_and_no_task() -> None:
    """As a storm of connections does, or a probe that only asks whether the port is open."""
    guard = Guard(LIMITS)
    async with serving(guard, num_gone=40) as port:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await receive_all(stream)).startswith(b"HTTP/1.1 204")
        assert (guard.statistics.num_left, guard.statistics.num_accepted) == (40, 1)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
async def test_an_ipv4_client_is_called_so_where_both_kinds_may_come() -> None:
    clients: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        clients.append(scope["client"][0])
        await echo(scope, receive, send)

    async with serving(app=app, host="::") as port:
        for host in ("127.0.0.1", "::1"):
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                await receive_all(stream)
    assert clients == ["127.0.0.1", "::1"]
