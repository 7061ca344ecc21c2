"""WebSockets against Autobahn's list of cases, written by hand; and floods, which cost others little.

Where RFC 6455 leaves a choice: messages that arrive together with what ends the connection are not answered
any more, text is checked fragment by fragment (as its bytes arrive, but not inside of a
frame), and a protocol error is answered by a close frame and the end of the connection.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from sensorium.actors.loop_hold import LoopHold
from support.server import MAX_HOLD_S
from support.wire import HANDSHAKE, close, connected, frame, serving
from websockets.frames import Frame, Opcode

pytestmark = pytest.mark.slow

TEXT, BINARY, MORE, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
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
    # 1: framing
    **{
        f"1.1 text of {size}": (frame(TEXT, b"*" * size) + close(), ([text(b"*" * size)], 1000))
        for size in (0, 125, 126, 127, 128, 65_535, 65_536)
    },
    **{
        f"1.2 binary of {size}": (frame(BINARY, b"\xfe" * size) + close(), ([binary(b"\xfe" * size)], 1000))
        for size in (0, 125, 126, 127, 128, 65_535, 65_536)
    },
    # 2: pings and pongs
    "2.1 ping": (frame(PING) + close(), ([pong()], 1000)),
    "2.2 ping with content": (frame(PING, b"hello") + close(), ([pong(b"hello")], 1000)),
    "2.4 longest ping": (frame(PING, b"\xfe" * 125) + close(), ([pong(b"\xfe" * 125)], 1000)),
    "2.5 too long a ping": (frame(PING, b"\xfe" * 126), ([], 1002)),
    "2.7 pong unasked": (frame(PONG, b"x") + HI + close(), ([text()], 1000)),
    "2.10 ten pings": (
        b"".join(frame(PING, b"%d" % i) for i in range(10)) + close(),
        ([pong(b"%d" % i) for i in range(10)], 1000),
    ),
    # 3: reserved bits
    **{
        f"3 reserved bits {bits}": (HI + frame(TEXT, b"x", reserved=bits) + frame(PING), ([], 1002))
        for bits in range(1, 8)
    },
    "3.7 on a ping": (frame(PING, reserved=3), ([], 1002)),
    # 4: reserved opcodes
    **{
        f"4 opcode {code}": (HI + frame(code) + frame(PING), ([], 1002))
        for code in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    },
    # 5: fragments
    "5.1 fragmented ping": (frame(PING, b"a", fin=False) + frame(MORE, b"b"), ([], 1002)),
    "5.2 fragmented pong": (frame(PONG, b"a", fin=False) + frame(MORE, b"b"), ([], 1002)),
    "5.3 two fragments": (frame(TEXT, b"h", fin=False) + frame(MORE, b"i") + close(), ([text()], 1000)),
    "5.6 ping between": (
        frame(TEXT, b"h", fin=False) + frame(PING, b"p") + frame(MORE, b"i") + close(),
        ([pong(b"p"), text()], 1000),
    ),
    "5.9 nothing to go on with": (frame(MORE, b"x") + HI, ([], 1002)),
    "5.10 nor for a fragment": (frame(MORE, b"x", fin=False) + HI, ([], 1002)),
    "5.15 nor after a message": (
        frame(TEXT, b"h", fin=False) + frame(MORE, b"i") + frame(MORE, b"x", fin=False) + HI,
        ([], 1002),
    ),
    "5.18 a message inside of one": (frame(TEXT, b"h", fin=False) + frame(TEXT, b"i"), ([], 1002)),
    "5.19 many fragments": (
        frame(TEXT, b"a", fin=False)
        + b"".join(frame(MORE, b"b", fin=False) + frame(PING) for _ in range(5))
        + frame(MORE, b"c")
        + close(),
        ([*[pong()] * 5, text(b"abbbbbc")], 1000),
    ),
    "5 empty fragments": (
        frame(BINARY, b"", fin=False) + frame(MORE, b"", fin=False) + frame(MORE, b"") + close(),
        ([binary(b"")], 1000),
    ),
    # 6: UTF-8
    "6.1 nothing": (frame(TEXT, b"", fin=False) + frame(MORE, b"") + close(), ([text(b"")], 1000)),
    "6.2 a fragment per byte": (
        frame(TEXT, b"", fin=False)
        + b"".join(frame(MORE, GREEK[i : i + 1], fin=False) for i in range(len(GREEK)))
        + frame(MORE)
        + close(),
        ([text(GREEK)], 1000),
    ),
    "6.3 surrogate": (frame(TEXT, BAD_UTF_8), ([], 1007)),
    "6.4 in a fragment": (frame(TEXT, BAD_UTF_8, fin=False), ([], 1007)),
    "6.4 after a good one": (
        frame(TEXT, GREEK, fin=False) + frame(MORE, b"\xf4\x90\x80\x80", fin=False),
        ([], 1007),
    ),
    "6.5 cut off": (frame(TEXT, GREEK[:-1]), ([], 1007)),
    "6.6 last code point": (frame(TEXT, b"\xf4\x8f\xbf\xbf") + close(), ([text(b"\xf4\x8f\xbf\xbf")], 1000)),
    "6.7 noncharacter": (frame(TEXT, b"\xef\xbf\xbf") + close(), ([text(b"\xef\xbf\xbf")], 1000)),
    "6.9 NUL": (frame(TEXT, b"\0") + close(), ([text(b"\0")], 1000)),
    **{
        f"6 {data!r}": (frame(TEXT, data), ([], 1007))
        for data in (b"\x80", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xed\xbf\xbf")
    },
    # 7: closing
    "7.1 twice": (close() + close(), ([], 1000)),
    "7.1.3 ping after": (close() + frame(PING), ([], 1000)),
    "7.1.5 in the middle of a message": (frame(TEXT, b"h", fin=False) + close(), ([], 1002)),
    "7.3.1 no code": (close(None), ([], 1005)),
    "7.3.2 half a code": (frame(CLOSE, b"\x03"), ([], 1002)),
    "7.3.4 a reason": (close(1000, b"done"), ([], 1000)),
    "7.3.5 the longest reason": (close(1000, b"x" * 123), ([], 1000)),
    "7.3.6 too long a reason": (close(1000, b"x" * 124), ([], 1002)),
    "7.5 a reason that is no text": (close(1000, BAD_UTF_8), ([], 1007)),
    **{
        f"7.7 code {code}": (close(code), ([], code))
        for code in (1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999)
    },
    **{
        f"7.9 code {code}": (close(code), ([], 1002))
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535)
    },
    # 9: sizes; others: masks
    "9 as long as allowed": (frame(BINARY, bytes(100_000)) + close(), ([binary(bytes(100_000))], 1000)),
    "9 too long": (HI + frame(BINARY, bytes(100_001)), ([], 1009)),
    "9 too long in fragments": (
        frame(BINARY, bytes(60_000), fin=False) + frame(MORE, bytes(60_000)),
        ([], 1009),
    ),
    "9 announced only": (bytes([0x82, 0xFF]) + (2**63 - 1).to_bytes(8) + bytes(4), ([], 1009)),
    "9 beyond 63 bits": (bytes([0x82, 0xFF]) + (2**64 - 1).to_bytes(8) + bytes(4), ([], 1009)),
    "unmasked": (HI + frame(TEXT, b"x", masked=False) + HI, ([], 1002)),
}


def seen(frames: Sequence[Frame]) -> list[tuple[Opcode, bytes]]:
    return [(each.opcode, bytes(each.data)) for each in frames]


@pytest.mark.parametrize("name", CASES)
async def test_a_case_of_autobahns(name: str) -> None:
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
