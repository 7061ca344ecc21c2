"""Frames a few at a time, and large ones as several: the same messages, however the bytes are cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.transport.frame_splitter import FRAMES_AT_ONCE, FrameCutter
from support.wire import close, frame
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

MAX_BYTES: Final = 200
PIECE_BYTES: Final = 8
KEYS: Final = (bytes(4), b"\x01\x02\x03\x04")

FRAMES = st.builds(
    lambda opcode, size, fin, reserved, masked: frame(
        opcode, bytes(range(size)), fin=fin, reserved=reserved, masked=masked
    ),
    st.sampled_from((0, 1, 2, 2, 2, 8, 9, 10, 11)),
    st.sampled_from((0, 1, 7, 8, 9, 15, 16, 17, 24, 31, 33, 100, 125, 126, 190, 200, 201, 255)),
    st.booleans(),
    st.sampled_from((0, 0, 0, 0, 0, 1)),
    st.sampled_from((True,) * 7 + (False,)),
)

TINY = st.sampled_from((frame(2, b"ab"), frame(9), frame(2, b"", fin=False) + frame(0, b"c")))


def masked(data: bytes, key: bytes) -> bytes:
    """A binary frame of up to 125 bytes."""
    return bytes((0x82, 0x80 | len(data))) + key + bytes(each ^ key[at % 4] for at, each in enumerate(data))


def taken(protocol: Protocol, data: list[bytes]) -> tuple[list[tuple[int, bytes, bool]], str]:
    """What comes of bytes: fragments put together, and why no more comes."""
    for each in data:
        protocol.receive_data(each)
    found: list[tuple[int, bytes, bool]] = []
    for event in protocol.events_received():
        assert isinstance(event, Frame)
        if event.opcode is Opcode.CONT:
            opcode, before, _ = found.pop()
            found.append((opcode, before + event.data, event.fin))
        elif event.opcode in (Opcode.TEXT, Opcode.BINARY):
            found.append((event.opcode, bytes(event.data), event.fin))
    return found, "" if protocol.parser_exc is None else type(protocol.parser_exc).__name__


def cut(cutter: FrameCutter, data: bytes) -> Iterator[bytes]:
    """All of it, some frames at a time."""
    while data:
        piece, data = cutter.cut(data)
        yield piece


def protocol() -> Protocol:
    return Protocol(Side.SERVER, max_size=MAX_BYTES)


@given(
    st.lists(FRAMES, max_size=8) | st.lists(TINY, min_size=100, max_size=300),
    st.lists(st.integers(0, 600), max_size=6),
)
def test_messages_are_the_same_however_they_are_cut(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frames)
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    cutter = FrameCutter(max_bytes=MAX_BYTES, piece_bytes=PIECE_BYTES)
    pieces = [piece for start, end in pairwise(places) for piece in cut(cutter, data[start:end])]
    assert taken(protocol(), pieces) == taken(protocol(), [data])


@given(st.integers(0, 125), st.sampled_from(KEYS))
def test_no_piece_has_more_than_twice_the_bytes_or_fewer(size: int, key: bytes) -> None:
    data = masked(bytes(range(size)), key)
    cutter = FrameCutter(max_bytes=MAX_BYTES, piece_bytes=PIECE_BYTES)
    whole = protocol()
    whole.receive_data(b"".join(cut(cutter, data)))
    found = [event for event in whole.events_received() if isinstance(event, Frame)]
    assert b"".join(event.data for event in found) == bytes(range(size))
    assert [event.fin for event in found] == [False] * (len(found) - 1) + [True]
    assert all(len(event.data) <= 2 * PIECE_BYTES for event in found)
    assert len(found) == 1 or all(len(event.data) >= PIECE_BYTES for event in found)


def test_what_comes_behind_a_large_frame_is_found() -> None:
    cutter = FrameCutter(max_bytes=MAX_BYTES, piece_bytes=PIECE_BYTES)
    whole = protocol()
    for each in frame(2, bytes(100)) + frame(9, b"hi") + frame(1, b"text") + close():
        whole.receive_data(b"".join(cut(cutter, bytes((each,)))))
    found = [event for event in whole.events_received() if isinstance(event, Frame)]
    assert [event.opcode for event in found[-3:]] == [Opcode.PING, Opcode.TEXT, Opcode.CLOSE]


def test_only_some_tiny_frames_come_at_a_time() -> None:
    """Behind a large one, too."""
    cutter = FrameCutter(max_bytes=MAX_BYTES, piece_bytes=PIECE_BYTES)
    whole, nums = protocol(), list[int]()
    for piece in cut(cutter, frame(2, bytes(100)) + frame(2, b"ab") * 1000):
        whole.receive_data(piece)
        nums.append(len(whole.events_received()))
    assert sum(nums) == 1000 + 12
    assert max(nums) <= FRAMES_AT_ONCE + 12
