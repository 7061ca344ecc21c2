"""Messages as frames on a stream of bytes, and back. Pure; knows no type of message and no stream.

A message belongs to a call, by its number, and has a head (its encoded fields) and buffers behind it
(features, long answers). A small message is one frame. A large one is announced by its sizes and follows in
parts, between which others' frames may come: so speech never waits for somebody's picture to pass. Read
`actors/engine_process/multiplexer.py` for who sends them in which order.

    frame  = size u32, kind u8, call u64, then `size` bytes
    kind 0   a message without buffers: its head
    kind 1   a large message begins: sizes, u64 each, of its head and its buffers
    kind 2   the next bytes of the call's large message

Any other frame of a call gives up what it had begun: who sends has nothing more to say of that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

Buffer = bytes | memoryview

HEADER: Final = struct.Struct("!IBQ")
MAX_FRAME: Final = 128 * 1024
"""Bytes in one frame: a few tens of microseconds to copy, and as long for others to wait."""
MAX_MESSAGE: Final = 2**31
"""Bytes of a message. The media budget of a request is less (`actors/media_decoding/memory_budget.py`)."""
_MAX_BUFFERS: Final = MAX_FRAME // 8 - 1

_SMALL, _BEGIN, _PART = range(3)


class FrameError(ValueError):
    """The other side does not speak this, or not this version of it."""


@dataclass(slots=True)
class EncodedMessage:
    """What arrived for a call. Pieces join to the head and the buffers, in order, of `sizes`."""

    call: int
    sizes: tuple[int, ...]
    pieces: list[Buffer] = field(default_factory=list)
    num_bytes: int = 0
    """Of the pieces."""

    @property
    def is_whole(self) -> bool:
        """Whether all of it is here."""
        return self.num_bytes == sum(self.sizes)

    def joined(self) -> list[bytes]:
        """Head and buffers. Copies everything once."""
        if len(self.sizes) == 1:
            return [b"".join(self.pieces)]
        found: list[bytes] = []
        pieces = iter(self.pieces)
        piece = memoryview(b"")
        for size in self.sizes:
            parts: list[Buffer] = []
            missing = size
            while missing:
                if not len(piece):
                    piece = memoryview(next(pieces))
                parts.append(piece[:missing])
                missing -= len(parts[-1])
                piece = piece[len(parts[-1]) :]
            found.append(b"".join(parts))
        return found


def small_frame(call: int, head: bytes) -> bytes | None:
    """The one frame of a message without buffers; None if it is too large for that."""
    if len(head) > MAX_FRAME:
        return None
    return HEADER.pack(len(head), _SMALL, call) + head


def large_frames(call: int, head: bytes, buffers: Sequence[Buffer]) -> Iterator[tuple[Buffer, ...]]:
    """The frames of a large message, each as buffers to send one behind the other; nothing is copied.

    Raises FrameError at once for what is too large for a message.
    """
    whole = [head, *buffers]
    sizes = [len(each) for each in whole]
    if len(sizes) > _MAX_BUFFERS or sum(sizes) > MAX_MESSAGE:
        raise FrameError(f"a message of {len(sizes)} buffers, {sum(sizes)} bytes is too large")
    return _cut(call, whole, sizes)


def _cut(call: int, whole: Sequence[Buffer], sizes: Sequence[int]) -> Iterator[tuple[Buffer, ...]]:
    yield (HEADER.pack(8 * len(sizes), _BEGIN, call), struct.pack(f"!{len(sizes)}Q", *sizes))
    for each in whole:
        view = memoryview(each).cast("B")
        for start in range(0, len(view), MAX_FRAME):
            part = view[start : start + MAX_FRAME]
            yield (HEADER.pack(len(part), _PART, call), part)


class FrameReader:
    """Bytes in any pieces → whole messages, in the order of their ends."""

    def __init__(self) -> None:
        self._header = b""  # the beginning of one
        self._body: list[Buffer] = []  # of the frame that is arriving
        self._missing = 0
        self._kind = _SMALL
        self._call = 0
        self._begun: dict[int, EncodedMessage] = {}

    def feed(self, data: bytes) -> Iterator[EncodedMessage]:
        """The messages that `data` completes. Raises FrameError; the stream is of no use then."""
        view = memoryview(data)
        while len(view):
            if not self._missing:
                view = self._read_header(view)
                if self._missing or len(self._header):
                    continue
            else:
                part = view[: self._missing]
                view = view[len(part) :]
                self._missing -= len(part)
                self._body.append(part)
            if not self._missing:
                yield from self._end_frame()

    def _read_header(self, view: memoryview) -> memoryview:
        """Take a header, or what is there of it; an empty frame then has nothing missing and no header."""
        taken = view[: HEADER.size - len(self._header)]
        self._header += bytes(taken)
        if len(self._header) == HEADER.size:
            self._missing, self._kind, self._call = HEADER.unpack(self._header)
            self._header = b""
            if self._missing > MAX_FRAME or self._kind > _PART:
                raise FrameError(f"a frame of kind {self._kind} and {self._missing} bytes")
        return view[len(taken) :]

    def _end_frame(self) -> Iterator[EncodedMessage]:
        body, self._body = self._body, []
        size = sum(map(len, body))
        if self._kind == _PART:
            encoded = self._begun.get(self._call)
            if encoded is None:
                raise FrameError(f"call {self._call} continues a message it did not begin")
            encoded.pieces += body
            encoded.num_bytes += size
        else:
            self._begun.pop(self._call, None)
            encoded = EncodedMessage(self._call, (size,), body, size)
            if self._kind == _BEGIN:
                encoded = self._begun[self._call] = EncodedMessage(self._call, _sizes(b"".join(body)))
        if encoded.num_bytes > sum(encoded.sizes):
            raise FrameError(f"call {self._call} sends more than it announced")
        if encoded.is_whole:
            self._begun.pop(self._call, None)
            yield encoded


def _sizes(body: bytes) -> tuple[int, ...]:
    if not body or len(body) % 8:
        raise FrameError(f"{len(body)} bytes are not a list of sizes")
    sizes = struct.unpack(f"!{len(body) // 8}Q", body)
    if sum(sizes) > MAX_MESSAGE:
        raise FrameError(f"a message of {sum(sizes)} bytes")
    return sizes
