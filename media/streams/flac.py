"""FLAC frame by frame (RFC 9639). A frame does not tell its length: it ends where the next one begins.

That is where a head with a right checksum carries the next number. At the end of a stream, or at a commit,
a frame is complete if its own checksum says so. Read next: `decoder.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from .packets import MAX_HEADER_BYTES, Item, Packet, StreamError, Track

_MAGIC: Final = b"fLaC"
_STREAMINFO_BYTES: Final = 34
_MAX_FRAME_BYTES: Final = 1 << 20
_MAX_HEAD_BYTES: Final = 16


def _table(polynomial: int, width: int) -> tuple[int, ...]:
    top, mask = 1 << width - 1, (1 << width) - 1
    values = []
    for byte in range(256):
        value = byte << width - 8
        for _ in range(8):
            value = (value << 1 ^ polynomial if value & top else value << 1) & mask
        values.append(value)
    return tuple(values)


_CRC_8: Final = _table(0x07, 8)
_CRC_16: Final = _table(0x8005, 16)


class _Head(NamedTuple):
    """A frame's number (or first sample, where sizes vary), its samples, and what must stay as it is."""

    number: int
    num_samples: int
    kind: int


class FlacDemuxer:
    """See `Demuxer`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._position = 0
        self._skipping = 0
        self._has_info = False
        self._has_frames = False
        """The metadata has passed."""
        self._num_header_bytes = 0
        self._head: _Head | None = None
        """Of the frame that the buffer begins with."""
        self._searched = 0

    def push(self, data: bytes) -> list[Item]:
        """See `Demuxer.push`."""
        skipped = min(self._skipping, len(data))
        self._skipping -= skipped
        self._buffer += data[skipped:]
        if not self._has_frames:
            self._num_header_bytes += len(data)
            if self._num_header_bytes > 16 * MAX_HEADER_BYTES:
                raise StreamError(f"no sound came within {16 * MAX_HEADER_BYTES} bytes of the FLAC stream")
        items = list(self._metadata())
        if self._has_frames:
            items += self._frames()
        return items

    def end(self) -> list[Item]:
        """The last frame, if it is whole."""
        data = bytes(self._buffer)
        if self._head is None or not data or _crc_16(data):
            return []
        self._buffer.clear()
        self._head = None
        return [Packet(data)]

    def _metadata(self) -> Iterator[Item]:
        """The blocks in front of the frames; what is not needed is skipped as it comes."""
        buffer = self._buffer
        while not self._has_frames and not self._skipping:
            if not self._has_info and not (buffer.startswith(_MAGIC) or _MAGIC.startswith(buffer)):
                raise StreamError("the stream is no FLAC, or does not begin at its beginning")
            start = 0 if self._has_info else len(_MAGIC)
            if len(buffer) < start + 4:
                return
            is_last, kind = buffer[start] & 0x80, buffer[start] & 0x7F
            size = int.from_bytes(buffer[start + 1 : start + 4])
            end = start + 4 + size
            if not self._has_info:
                if kind != 0 or size != _STREAMINFO_BYTES:
                    raise StreamError("the FLAC stream's header is damaged")
                if len(buffer) < end:
                    return
                self._has_info = True
                yield Track("flac", extradata=bytes(buffer[start + 4 : end]))
            self._skipping = max(0, end - len(buffer))
            del buffer[:end]
            self._has_frames = bool(is_last)

    def _frames(self) -> Iterator[Item]:
        buffer = self._buffer
        while True:
            if self._head is None:
                if len(buffer) < _MAX_HEAD_BYTES:
                    return
                self._head = _read_head(bytes(buffer[:_MAX_HEAD_BYTES]))
                if self._head is None:
                    self._drop_to_next()
                    if self._head is None:
                        return
                self._searched = 1
            found = self._next_head()
            if found is None:
                if len(buffer) > _MAX_FRAME_BYTES:
                    raise StreamError("the FLAC stream is damaged: a frame has no end")
                return
            at, head = found
            yield Packet(bytes(buffer[:at]))
            del buffer[:at]
            self._head, self._searched = head, 1

    def _next_head(self) -> tuple[int, _Head] | None:
        """Where the frame behind the first one begins."""
        known, buffer = self._head, self._buffer
        assert known is not None
        is_varying = known.kind & 1
        expected = known.number + (known.num_samples if is_varying else 1)
        while (at := buffer.find(b"\xff", self._searched)) >= 0 and at + _MAX_HEAD_BYTES <= len(buffer):
            self._searched = at + 1
            head = _read_head(bytes(buffer[at : at + _MAX_HEAD_BYTES]))
            if head is not None and head.kind == known.kind and head.number == expected:
                return at, head
        self._searched = at if at >= 0 else len(buffer)
        return None

    def _drop_to_next(self) -> None:
        """Leave out what is no frame."""
        buffer = self._buffer
        at = buffer.find(b"\xff", 1)
        while at >= 0 and at + _MAX_HEAD_BYTES <= len(buffer):
            self._head = _read_head(bytes(buffer[at : at + _MAX_HEAD_BYTES]))
            if self._head is not None:
                break
            at = buffer.find(b"\xff", at + 1)
        del buffer[: at if at >= 0 else len(buffer)]


def _read_head(data: bytes) -> _Head | None:
    """The head at the start of `data`, if it is one with a right checksum."""
    if data[0] != 0xFF or data[1] & 0xFE != 0xF8 or data[3] & 1:
        return None
    size_code, rate_code = data[2] >> 4, data[2] & 15
    if not size_code or rate_code == 15 or data[3] >> 4 > 10:
        return None
    num_more = 0 if data[4] < 0x80 else 7 - (data[4] ^ 0xFF).bit_length()
    if data[4] >= 0x80 and not 1 <= num_more <= 6:
        return None
    number = data[4] if not num_more else data[4] & (0x3F >> num_more)
    for byte in data[5 : 5 + num_more]:
        if byte & 0xC0 != 0x80:
            return None
        number = number << 6 | byte & 0x3F
    at = 5 + num_more
    if size_code in (6, 7):
        length = size_code - 5
        num_samples = int.from_bytes(data[at : at + length]) + 1
        at += length
    else:
        num_samples = 192 if size_code == 1 else 144 << size_code if size_code < 6 else 1 << size_code
    at += {12: 1, 13: 2, 14: 2}.get(rate_code, 0)
    crc = 0
    for byte in data[:at]:
        crc = _CRC_8[crc ^ byte]
    if at >= len(data) or crc != data[at]:
        return None
    return _Head(number, num_samples, data[1] & 1)


def _crc_16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc = crc << 8 & 0xFFFF ^ _CRC_16[crc >> 8 ^ byte]
    return crc
