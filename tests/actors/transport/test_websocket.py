"""What a WebSocket does beside Autobahn's cases (`test_autobahn.py`); and floods, which cost others little.

Where RFC 6455 leaves a choice: messages that arrive together with what ends the connection are not answered
any more, text is checked fragment by fragment (as its bytes arrive, but not inside of a
frame), and a protocol error is answered by a close frame and the end of the connection.
"""

from __future__ import annotations

import gc
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from sensorium.actors.telemetry.loop_blocking import LoopHold
from sensorium.actors.transport.http_exchange import Exchange
from sensorium.actors.transport.websocket import WebSocketConnection
from support.server import MAX_HOLD_S
from support.wire import HANDSHAKE, Echo, close, connected, frame, serving
from trio.testing import wait_all_tasks_blocked
from websockets.frames import Frame, Opcode

pytestmark = pytest.mark.slow

TEXT, BINARY, MORE, PING, PONG = 1, 2, 0, 9, 10
GREEK = "κόσμε".encode()
BAD_UTF_8 = b"\xce\xba\xed\xa0\x80edited"

Expected = tuple[Sequence[tuple[Opcode, bytes]], int | None]


def text(data: bytes = b"hi") -> tuple[Opcode, bytes]:
    return (Opcode.TEXT, data)


def binary(data: bytes) -> tuple[Opcode, bytes]:
    return (Opcode.BINARY, data)


def pong(data: bytes = b"") -> tuple[Opcode, bytes]:
    return (Opcode.PONG, data)


HI = frame(TEXT, b"hi")
CASES: dict[str, tuple[bytes, Expected]] = {
    "in one packet with what ends it": (HI + frame(TEXT, b"x", reserved=4), ([], 1002)),
    "or with an unknown opcode": (HI + frame(3) + frame(PING), ([], 1002)),
    "unmasked": (HI + frame(TEXT, b"x", masked=False) + HI, ([], 1002)),
    "empty binary fragments": (
        frame(BINARY, b"", fin=False) + frame(MORE, b"", fin=False) + frame(MORE, b"") + close(),
        ([binary(b"")], 1000),
    ),
    "half a character in a fragment": (frame(TEXT, GREEK[:-1]), ([], 1007)),
    "surrogates in a fragment": (frame(TEXT, BAD_UTF_8, fin=False), ([], 1007)),
    **{f"close {code}": (close(code), ([], code)) for code in (1012, 1013, 1014)},
    "close 1015": (close(1015), ([], 1002)),
    "as long as allowed": (frame(BINARY, bytes(100_000)) + close(), ([binary(bytes(100_000))], 1000)),
    "too long": (HI + frame(BINARY, bytes(100_001)), ([], 1009)),
    "too long in fragments": (
        frame(BINARY, bytes(60_000), fin=False) + frame(MORE, bytes(60_000)),
        ([], 1009),
    ),
    "too long, announced only": (bytes([0x82, 0xFF]) + (2**63 - 1).to_bytes(8) + bytes(4), ([], 1009)),
    "beyond 63 bits": (bytes([0x82, 0xFF]) + (2**64 - 1).to_bytes(8) + bytes(4), ([], 1009)),
}


def seen(frames: Sequence[Frame]) -> list[tuple[Opcode, bytes]]:
    return [(each.opcode, bytes(each.data)) for each in frames]


@pytest.mark.parametrize("name", CASES)
async def test_a_case(name: str) -> None:
    data, (expected, code) = CASES[name]
    async with serving() as server, connected(server.port) as peer:
        await peer.upgrade()
        closes_after = len(expected) if expected and data.endswith(close()) else None
        frames, found = await peer.messages(
            data if closes_after is None else data[: -len(close())], close_after=closes_after
        )
        assert (seen(frames), found) == (list(expected), code)
        with trio.fail_after(1):  # at once: the place of its session is free
            while not server.app.close_codes:
                await trio.lowlevel.checkpoint()
        assert server.app.close_codes == [code]


async def test_byte_by_byte() -> None:
    async with serving() as server, connected(server.port) as peer:
        await peer.upgrade()
        for byte in frame(TEXT, GREEK) + frame(PING, b"p"):
            await peer.send(bytes([byte]))
        frames, _ = await peer.messages(b"", close_after=2)
        assert seen(frames) == [text(GREEK), pong(b"p")]


async def test_what_is_sent_with_the_handshake_counts() -> None:
    async with serving() as server, connected(server.port) as peer:
        await peer.send(HANDSHAKE + b"\r\n" + HI)
        data = b""
        with trio.fail_after(5):
            while not data.endswith(b"\r\n\r\n" + b"\x81\x02hi"):
                data += await peer.stream.receive_some()


async def test_a_connection_that_ends_without_a_close_is_lost() -> None:
    async with serving() as server:
        async with connected(server.port) as peer:
            await peer.upgrade()
            await peer.send(b"\x81")
        with trio.fail_after(1):
            while not server.app.close_codes:
                await trio.lowlevel.checkpoint()
        assert server.app.close_codes == [1006]


async def test_a_large_message_is_given_back_while_the_next_is_waited_for() -> None:
    async with serving() as server, connected(server.port) as peer:
        await peer.upgrade()
        await peer.send(frame(BINARY, bytes(90_000)))
        num_left = 10 + 90_000
        with trio.fail_after(5):
            while num_left:
                num_left -= len(await peer.stream.receive_some())
        await wait_all_tasks_blocked(0.01)
        held = [each for each in gc.get_objects() if isinstance(each, Frame) and len(each.data) > 50_000]
        assert not held


async def test_no_extension_is_agreed_on() -> None:
    async with serving() as server, connected(server.port) as peer:
        offer = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
        head = (await peer.upgrade(offer)).body
        assert b"extensions" not in head.lower()


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"short", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"dGhlIHNhbXBsZSBub25jZ!==", 400),
        (b"Version: 13", b"Version: 12", 426),
        (b"Connection: Upgrade", b"Connection: keep-alive", 426),
        (b"GET /", b"POST /", 400),
        (b"Connection: Upgrade", b"Connection: Upgrade\x03", 400),
        (b"Host: x", b"Host: x\r\nContent-Length: 3", 400),
        (b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b"", 400),
    ],
)
async def test_a_handshake_that_is_none(before: bytes, after: bytes, status: int) -> None:
    async with serving() as server, connected(server.port) as peer:
        assert before in HANDSHAKE
        await peer.send(HANDSHAKE.replace(before, after) + b"\r\n")
        refused = await peer.answer()
        assert refused.status == status
        assert refused.body.startswith(b'{"error":{"message":')
        if status == 426:
            assert refused.headers["upgrade"] == "websocket"
        assert not server.app.scopes


FLOODS = {
    "empty fragments": frame(TEXT, b"", fin=False) + frame(MORE, b"", fin=False) * 40_000,
    "fragments of a byte": frame(BINARY, b"", fin=False) + frame(MORE, b"x", fin=False) * 40_000,
    "pings": frame(PING) * 40_000,
    "pongs": frame(PONG, b"0123") * 40_000,
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_ends_and_others_hardly_notice(name: str) -> None:
    async with serving() as server, connected(server.port) as peer, connected(server.port) as other:
        await peer.upgrade()
        found: list[int | None] = []

        async def flood(*, task_status: trio.TaskStatus[None]) -> None:
            task_status.started()
            found.append((await peer.messages(FLOODS[name]))[1])

        hold = LoopHold(above_s=MAX_HOLD_S)
        trio.lowlevel.add_instrument(hold)
        async with trio.open_nursery() as nursery:
            await nursery.start(flood)
            while not found:
                assert (await other.request("GET /health HTTP/1.1")).status == 200
        trio.lowlevel.remove_instrument(hold)
        assert found == [1008]
        assert server.app.close_codes == [1008]
        assert server.guard.statistics.num_floods == 1
        assert not [each for each in hold.above if "_serve" in each.task]  # the others are the client's


async def test_quick_live_audio_is_no_flood() -> None:
    """Half a minute in pieces of 20 ms, as fast as it can be sent."""
    async with serving() as server, connected(server.port) as peer:
        await peer.upgrade()
        frames, code = await peer.messages(frame(BINARY, bytes(640)) * 1500, close_after=1500)
        assert (len(frames), code) == (1500, 1000)


def counted_by_turn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The application only counts the messages it takes in, in the last of these."""
    num_in_turn = [0]

    async def listen(
        echo: Echo, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] == "websocket.receive":
            num_in_turn[-1] += 1
        echo.left.set()

    monkeypatch.setattr(Echo, "_talk", listen)
    return num_in_turn


async def test_tiny_messages_of_one_read_leave_others_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    num_in_turn = counted_by_turn(monkeypatch)
    async with serving() as server, connected(server.port) as peer, trio.open_nursery() as nursery:
        await peer.upgrade()
        nursery.start_soon(peer.send, frame(BINARY, b"xy") * 1000 + close())
        while not server.app.left.is_set():
            num_in_turn.append(0)
            await trio.lowlevel.checkpoint()
    assert sum(num_in_turn) == 1000
    assert max(num_in_turn) < 40, "a thousand are in one read"


async def test_many_websockets_with_tiny_messages_hold_the_loop_no_longer_than_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_in_turn = counted_by_turn(monkeypatch)
    async with serving() as server, AsyncExitStack() as stack, trio.open_nursery() as nursery:
        peers = [await stack.enter_async_context(connected(server.port)) for _ in range(8)]
        for peer in peers:
            await peer.upgrade()
        for peer in peers:
            nursery.start_soon(peer.send, frame(BINARY, b"xy") * 1000)
        while sum(num_in_turn) < 8000:
            num_in_turn.append(0)
            await trio.lowlevel.checkpoint()
    assert sum(each for each in num_in_turn if each > 40) < 8 * 300, "what each may send in any case"


async def test_a_large_frame_is_handled_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of one of 20 MB took 35 ms."""
    sizes = list[int]()
    data = random.Random(0).randbytes(4_000_000)

    def take(connection: WebSocketConnection, each: Frame) -> bool:
        sizes.append(len(each.data))
        return taken(connection, each)

    taken = WebSocketConnection._take
    monkeypatch.setattr(WebSocketConnection, "_take", take)
    async with serving(max_message_bytes=5_000_000) as server, connected(server.port) as peer:
        await peer.upgrade()
        frames, code = await peer.messages(frame(BINARY, data), close_after=1)
        assert (b"".join(each.data for each in frames), code) == (data, 1000)
    assert max(sizes) <= 1_100_000


async def _talk_on(
    echo: Echo, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Until nothing can be sent any more."""
    await receive()
    await send({"type": "websocket.accept"})
    try:
        while True:
            await send({"type": "websocket.send", "text": "x" * 65_536})
    finally:
        echo.left.set()


async def test_a_client_that_is_gone_is_no_failure_of_an_application_with_tasks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(
        echo: Echo, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_talk_on, echo, receive, send)

    monkeypatch.setattr(Echo, "_talk", talk)
    async with serving() as server, connected(server.port) as peer:
        await peer.send(HANDSHAKE + b"\r\n")
        await peer.stream.receive_some()
        peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await peer.stream.aclose()
        await server.app.left.wait()
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_connection_that_breaks_leaves_nothing_to_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full collection holds the loop: a tenth of a second, where many break."""
    monkeypatch.setattr(Echo, "_talk", _talk_on)
    gc.collect()
    gc.disable()
    try:
        async with serving() as server, connected(server.port) as peer, connected(server.port) as other:
            await peer.send(HANDSHAKE + b"\r\n")
            await peer.stream.receive_some()
            peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await peer.stream.aclose()
            await server.app.left.wait()
            await other.send(b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf")
            await other.stream.send_eof()
            while await other.stream.receive_some():
                pass
        server.app.scopes.clear()
        left = [each for each in gc.get_objects() if isinstance(each, Exchange)]
        assert not left
    finally:
        gc.enable()
