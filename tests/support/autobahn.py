"""Autobahn's cases for WebSocket servers by their numbers, sections 1 to 7, 9 and 10, as bytes and answers.

Written anew from what the published list says of each case, and the standards behind it: RFC 6455, and for
UTF-8 RFC 3629 with the sequences of Markus Kuhn's test file. Sections 12 and 13 are permessage-deflate,
which is not spoken here; 8 and 11 have no cases. `python -m support.autobahn` in `tests/` runs all of them,
some minutes because frames have a rate; `tests/actors/transport/test_autobahn.py` runs those that are quick.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import trio
from support.wire import Peer, close, connected, frame, serving
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

TEXT, BINARY, MORE, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
MIB: Final = 1024 * 1024
MAX_MESSAGE_BYTES: Final = 16 * MIB
NUM_CASES: Final = {1: 16, 2: 11, 3: 7, 4: 10, 5: 20, 6: 145, 7: 37, 9: 54, 10: 1}
"""Of each section, as published."""
DIFFERENT: Final = {
    "7.1.5": "a close inside of a fragmented message is answered by 1002, not 1000",
    "6.4.3": "text is checked frame by frame: inside of one, what is wrong is found at its end",
    "6.4.4": "the same",
}
"""Where we are not strict by the list; `docs/http.md` says so."""

Answer = tuple[Opcode, bytes]
Part = tuple[bytes, int]
"""Bytes to send, and how many frames are to be there before the next part."""


@dataclass(frozen=True)
class Case:
    """What is sent, what comes back, and the server's close code. `frames` None: whatever it is."""

    parts: tuple[Part, ...]
    frames: tuple[Answer, ...] | None
    code: int
    chop: int = 0
    """Bytes that are sent at a time; 0: each part whole."""

    def chopped(self, chop: int) -> Case:
        """The same, so many bytes at a time."""
        return replace(self, chop=chop)


def text(data: bytes) -> Answer:
    """An answer of this text."""
    return (Opcode.TEXT, data)


def pong(data: bytes = b"") -> Answer:
    """The answer to a ping."""
    return (Opcode.PONG, data)


def echoed(opcode: int, data: bytes, *frames: bytes) -> Case:
    """A message, sent in these frames or one, that comes back."""
    return good(b"".join(frames) or frame(opcode, data), (Opcode(opcode), data))


def good(data: bytes, *answers: Answer) -> Case:
    """Everything is answered, then both close."""
    return Case(((data, len(answers)), (close(), 0)), answers, 1000)


def bad(*data: bytes, code: int = 1002, before: Answer | None = None) -> Case:
    """It ends the connection; a message `before` it is answered first."""
    first = () if before is None else ((frame(before[0], before[1]), 1),)
    return Case((*first, *((each, 0) for each in data)), () if before is None else (before,), code)


def fragments(opcode: int, data: bytes, size: int) -> list[bytes]:
    """A message in frames of `size`."""
    parts = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
    last = len(parts) - 1
    return [frame(MORE if at else opcode, part, fin=at == last) for at, part in enumerate(parts)]


def _framing() -> Iterator[tuple[str, Case]]:
    for kind, opcode, filling in ((1, TEXT, b"*"), (2, BINARY, b"\xfe")):
        for number, size in enumerate((0, 125, 126, 127, 128, 65_535, 65_536, 65_536), 1):
            case = echoed(opcode, filling * size)
            yield f"1.{kind}.{number}", case.chopped(997) if number == 8 else case


def _pings() -> Iterator[tuple[str, Case]]:
    yield "2.1", good(frame(PING), pong())
    yield "2.2", good(frame(PING, b"Hello, world!"), pong(b"Hello, world!"))
    binary = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
    yield "2.3", good(frame(PING, binary), pong(binary))
    yield "2.4", good(frame(PING, b"\xfe" * 125), pong(b"\xfe" * 125))
    yield "2.5", bad(frame(PING, b"\xfe" * 126))
    yield "2.6", good(frame(PING, b"\xfe" * 125), pong(b"\xfe" * 125)).chopped(1)
    yield "2.7", good(frame(PONG))
    yield "2.8", good(frame(PONG, b"unsolicited"))
    yield "2.9", good(frame(PONG, b"unsolicited") + frame(PING, b"p"), pong(b"p"))
    ten = [b"payload-%d" % number for number in range(10)]
    many = good(b"".join(frame(PING, each) for each in ten), *map(pong, ten))
    yield "2.10", many
    yield "2.11", many.chopped(1)


def _reserved() -> Iterator[tuple[str, Case]]:
    hello, ping = b"Hello, world!", frame(PING)
    yield "3.1", bad(frame(TEXT, hello, reserved=1))
    for bits in (2, 3, 4):
        case = bad(frame(TEXT, hello, reserved=bits) + ping, before=text(hello))
        yield f"3.{bits}", case.chopped(1) if bits == 4 else case
    yield "3.5", bad(frame(BINARY, b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff", reserved=5))
    yield "3.6", bad(frame(PING, hello, reserved=6))
    yield "3.7", bad(frame(CLOSE, b"\x03\xe8", reserved=7))


def _opcodes() -> Iterator[tuple[str, Case]]:
    hello, ping = b"Hello, world!", frame(PING)
    for kind, first in ((1, 3), (2, 11)):
        yield f"4.{kind}.1", bad(frame(first))
        yield f"4.{kind}.2", bad(frame(first + 1, b"reserved opcode payload"))
        yield f"4.{kind}.3", bad(frame(first + 2) + ping, before=text(hello))
        yield f"4.{kind}.4", bad(frame(first + 3, b"reserved") + ping, before=text(hello))
        yield f"4.{kind}.5", bad(frame(first + 4, b"reserved") + ping, before=text(hello)).chopped(1)


def _fragments() -> Iterator[tuple[str, Case]]:
    one, two, both = b"fragment1", b"fragment2", b"fragment1fragment2"
    begun, ended = frame(TEXT, one, fin=False), frame(MORE, two)
    yield "5.1", bad(frame(PING, one, fin=False) + ended)
    yield "5.2", bad(frame(PONG, one, fin=False) + ended)
    whole = good(begun + ended, text(both))
    yield "5.3", whole
    yield "5.4", _framewise(whole, begun, ended)
    yield "5.5", whole.chopped(1)
    between = frame(PING, b"pongme")
    pinged = good(begun + between + ended, pong(b"pongme"), text(both))
    yield "5.6", pinged
    yield "5.7", _framewise(pinged, begun, between, ended)
    yield "5.8", pinged.chopped(1)
    for number, is_last in ((9, True), (12, False)):
        nothing = frame(MORE, b"non-continuation payload", fin=is_last)
        stray = bad(nothing + frame(TEXT, b"Hello, world!"))
        yield f"5.{number}", stray
        yield f"5.{number + 1}", _framewise(stray, nothing, frame(TEXT, b"Hello, world!"))
        yield f"5.{number + 2}", stray.chopped(1)
    tail = frame(MORE, b"x", fin=False) + frame(TEXT, b"Hello, world!")
    yield "5.15", Case(((begun + ended, 1), (tail, 0)), (text(both),), 1002)
    yield "5.16", bad((frame(MORE, one, fin=False) + begun + ended) * 2)
    yield "5.17", bad((frame(MORE, one) + begun + ended) * 2)
    yield "5.18", bad(begun + frame(TEXT, two))
    parts = [b"fragment%d" % number for number in range(1, 6)]
    first = begun + frame(MORE, parts[1], fin=False) + frame(PING, b"pongme 1!")
    then = frame(MORE, parts[2], fin=False) + frame(MORE, parts[3], fin=False)
    then += frame(PING, b"pongme 2!") + frame(MORE, parts[4])
    answers = (pong(b"pongme 1!"), pong(b"pongme 2!"), text(b"".join(parts)))
    waited = Case(((first, 1), (then, 3), (close(), 0)), answers, 1000)
    yield "5.19", waited
    yield "5.20", waited.chopped(1)


def _framewise(case: Case, *frames: bytes) -> Case:
    """The same with a packet for each frame."""
    *first, last = frames
    return replace(case, parts=(*((each, 0) for each in first), (last, case.parts[0][1]), *case.parts[1:]))


GREEK: Final = "κ\u1f79σμε".encode()
"""Its accented letter is one of three bytes."""
_BEYOND: Final = b"\xf4\x90\x80\x80"


def _utf_8() -> Iterator[tuple[str, Case]]:
    yield "6.1.1", echoed(TEXT, b"")
    empty = (frame(TEXT, fin=False), frame(MORE, fin=False), frame(MORE))
    yield "6.1.2", echoed(TEXT, b"", *empty)
    middle = (empty[0], frame(MORE, b"middle frame payload", fin=False), empty[2])
    yield "6.1.3", echoed(TEXT, b"middle frame payload", *middle)
    hello = "Hello-µ@ßöäüàá-UTF-8!!".encode()
    yield "6.2.1", echoed(TEXT, hello)
    cut = hello.index("ä".encode())
    yield "6.2.2", echoed(TEXT, hello, frame(TEXT, hello[:cut], fin=False), frame(MORE, hello[cut:]))
    yield "6.2.3", echoed(TEXT, hello, *fragments(TEXT, hello, 1))
    yield "6.2.4", echoed(TEXT, GREEK, *fragments(TEXT, GREEK, 1))
    edited = GREEK + b"\xed\xa0\x80edited"
    yield "6.3.1", bad(frame(TEXT, edited), code=1007)
    yield "6.3.2", bad(*fragments(TEXT, edited, 1), code=1007)
    # What follows is never sent: the connection has to end without it.
    yield "6.4.1", bad(frame(TEXT, GREEK, fin=False), frame(MORE, _BEYOND, fin=False), code=1007)
    yield "6.4.2", bad(frame(TEXT, GREEK + b"\xf4", fin=False), frame(MORE, b"\x90", fin=False), code=1007)
    whole = frame(TEXT, GREEK + _BEYOND + b"edited")
    yield "6.4.3", bad(whole[:-10], whole[-10:-6], whole[-6:], code=1007)
    yield "6.4.4", bad(whole[:-9], whole[-9:-8], whole[-8:], code=1007)
    for section, sequences in enumerate(_sequences(), 5):
        for number, data in enumerate(sequences, 1):
            try:
                data.decode()
            except UnicodeDecodeError:
                yield f"6.{section}.{number}", bad(frame(TEXT, data), code=1007)
            else:
                yield f"6.{section}.{number}", echoed(TEXT, data)


def _sequences() -> Iterator[Sequence[bytes]]:
    """Of sections 6.5 to 6.23."""
    yield [f"hello{sign}world".encode() for sign in "$¢€\U00024b62"] + [GREEK]
    yield [GREEK[:length] for length in range(1, len(GREEK) + 1)]
    yield [bytes.fromhex(each) for each in ("00", "c280", "e0a080", "f0908080")]
    yield [bytes.fromhex(each) for each in ("f888808080", "fc8480808080")]
    yield [bytes.fromhex(each) for each in ("7f", "dfbf", "efbfbf", "f48fbfbf")]
    yield [bytes.fromhex(each) for each in ("f7bfbfbf", "fbbfbfbfbf", "fdbfbfbfbfbf")]
    yield [bytes.fromhex(each) for each in ("ed9fbf", "ee8080", "efbfbd", "f48fbfbf", "f4908080")]
    yield [
        *(b"\x80", b"\xbf"),
        *((b"\x80\xbf" * 3)[:length] for length in range(2, 7)),
        bytes(range(0x80, 0xBF)),
    ]
    starts = ((0xC0, 0xDF), (0xE0, 0xEF), (0xF0, 0xF7), (0xF8, 0xFB), (0xFC, 0xFD))
    yield [b"".join(bytes([byte, 0x20]) for byte in range(*each)) for each in starts]
    least = [bytes([start]) + b"\x80" * rest for rest, start in enumerate((0xC0, 0xE0, 0xF0, 0xF8, 0xFC))]
    most = [bytes([start]) + b"\xbf" * rest for rest, start in enumerate((0xDF, 0xEF, 0xF7, 0xFB, 0xFD))]
    yield [*least, *most]
    yield [b"".join((*least, *most))]
    yield [b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"]
    for shortest in (
        ["c0af", "e080af", "f08080af"],
        ["c1bf", "e09fbf", "f08fbfbf"],
        ["c080", "e08080", "f0808080"],
    ):
        last = shortest[0][2:]
        wide = {"c0": ("f8808080", "fc80808080"), "c1": ("f887bfbf", "fc83bfbfbf")}[shortest[0][:2]]
        yield [bytes.fromhex(each) for each in (*shortest, *(each + last for each in wide))]
    high, low = ("eda080", "edadbf", "edae80", "edafbf"), ("edb080", "edbe80", "edbfbf")
    yield [bytes.fromhex(each) for each in (*high, *low)]
    yield [bytes.fromhex(first + second) for first in high for second in (low[0], low[2])]
    yield [chr(plane << 16 | last).encode() for plane in range(17) for last in (0xFFFE, 0xFFFF)]
    yield [chr(code).encode() for code in range(0xFFF9, 0x10000)]


def _closing() -> Iterator[tuple[str, Case]]:
    hello = frame(TEXT, b"Hello World!")
    yield "7.1.1", good(hello, text(b"Hello World!"))
    yield "7.1.2", Case(((close() + close(), 0),), (), 1000)
    yield "7.1.3", Case(((close() + frame(PING), 0),), (), 1000)
    yield "7.1.4", Case(((close() + hello, 0),), (), 1000)
    first, second = frame(TEXT, b"fragment1", fin=False), frame(MORE, b"fragment2")
    yield "7.1.5", Case(((first + close() + second, 0),), (), 1002)
    large = frame(TEXT, b"BAsd7&jh23" * (256 * 1024 // 10))
    yield "7.1.6", Case(((large + hello + close() + frame(PING), 0),), None, 1000)
    yield "7.3.1", Case(((close(None), 0),), (), 1005)
    yield "7.3.2", bad(frame(CLOSE, b"a"))
    yield "7.3.3", Case(((close(), 0),), (), 1000)
    yield "7.3.4", Case(((close(1000, b"Hello World!"), 0),), (), 1000)
    yield "7.3.5", Case(((close(1000, b"*" * 123), 0),), (), 1000)
    yield "7.3.6", bad(close(1000, b"*" * 124))
    yield "7.5.1", bad(close(1000, GREEK + b"\xed\xa0\x80edited"), code=1007)
    codes = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    for number, code in enumerate(codes, 1):
        yield f"7.7.{number}", Case(((close(code), 0),), (), code)
    for number, code in enumerate((0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999), 1):
        yield f"7.9.{number}", bad(close(code))
    yield "7.13.1", bad(close(5000))
    yield "7.13.2", bad(close(65_535))


def _sizes() -> Iterator[tuple[str, Case]]:
    for at, (opcode, filling) in enumerate(((TEXT, b"*"), (BINARY, b"\xfe"))):
        for number, size in enumerate((65_536, 262_144, MIB, 4 * MIB, 8 * MIB, 16 * MIB), 1):
            yield f"9.{1 + at}.{number}", echoed(opcode, filling * size)
        for number in range(9):
            data = filling * 4 * MIB
            yield f"9.{3 + at}.{number + 1}", echoed(opcode, data, *fragments(opcode, data, 64 * 4**number))
        for number in range(6):
            yield f"9.{5 + at}.{number + 1}", echoed(opcode, filling * MIB).chopped(64 * 2**number)
        for number, size in enumerate((0, 16, 64, 256, 1024, 4096), 1):
            message, answer = frame(opcode, filling * size), (Opcode(opcode), filling * size)
            parts = tuple((message, count) for count in range(1, 1001))
            yield f"9.{7 + at}.{number}", Case((*parts, (close(), 0)), (answer,) * 1000, 1000)
    data = b"*" * 65_536
    yield "10.1.1", echoed(TEXT, data, *fragments(TEXT, data, 1300))


def cases() -> dict[str, Case]:
    """All of them."""
    sections = (_framing, _pings, _reserved, _opcodes, _fragments, _utf_8, _closing, _sizes)
    return {number: case for section in sections for number, case in section()}


async def run_case(peer: Peer, case: Case, *, within_s: float = 20.0) -> tuple[list[Answer], int | None]:
    """What comes back on a new connection, and the server's close code."""
    await peer.upgrade()
    protocol = Protocol(Side.CLIENT, max_size=None)
    found: list[Answer] = []
    more = trio.Event()

    async def send() -> None:
        for data, num_awaited in case.parts:
            for at in range(0, len(data), case.chop or len(data)):
                await peer.send(data[at : at + (case.chop or len(data))])
            while len(found) < num_awaited:
                await more.wait()

    async def send_what_is_taken() -> None:
        try:
            await send()
        except trio.BrokenResourceError:
            return

    with trio.fail_after(within_s):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_what_is_taken)
            async for part in peer.stream:
                protocol.receive_data(part)
                for each in protocol.events_received():
                    assert isinstance(each, Frame)
                    if each.opcode not in (Opcode.CLOSE, Opcode.PING):  # of long connections
                        found.append((each.opcode, bytes(each.data)))
                more.set()
                more = trio.Event()
            nursery.cancel_scope.cancel()
    return found, None if protocol.close_rcvd is None else protocol.close_rcvd.code


async def main() -> None:
    """Run all, and print those that are not as they should be, and those that took long."""
    num_good = 0
    async with serving(max_message_bytes=MAX_MESSAGE_BYTES) as server:
        for number, case in cases().items():
            began = time.monotonic()
            async with connected(server.port) as peer:
                found, code = await run_case(peer, case, within_s=300.0)
            is_good = code == case.code and case.frames in (None, tuple(found))
            num_good += is_good
            took_s = time.monotonic() - began
            if not is_good or took_s > 1:
                print(f"{number}: {'right' if is_good else (found[:3], code)}, {took_s:.1f} s")
    print(f"{num_good} of {len(cases())} are as they should be; different from the list: {DIFFERENT}")


if __name__ == "__main__":
    sys.exit(trio.run(main))
