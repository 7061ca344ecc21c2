"""FLAC frame by frame (RFC 9639). A frame does not tell its length: it ends where the next one begins.

That is where a head with a right checksum carries the next number. Where one does not (bytes were lost,
another recording follows), and at a commit, a frame is complete if its own checksum says so. Read next:
`decoder.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from .id3 import OLD_TAG, OLD_TAG_BYTES, tag_length
from .packets import MAX_HEADER_BYTES, Item, Packet, StreamError, Track

_MAGIC: Final = b"fLaC"
_STREAMINFO_BYTES: Final = 34
_MAX_FRAME_BYTES: Final = 1 << 20
_MAX_HEAD_BYTES: Final = 16
_BEGINNINGS: Final = re.compile(rb"\xff[\xf8\xf9]|fLaC[\x00\x80]\x00\x00\x22", re.DOTALL)
"""Of a frame, or of another recording."""


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


class _Sum:
    """The checksum of the buffer from `start` on, as far as it was asked for."""

    def __init__(self, start: int) -> None:
        self.start = self._end = start
        self._crc = 0

    def through(self, buffer: bytearray, end: int) -> int:
        """Up to `end`, which only grows; 0 behind a whole frame."""
        self._crc = _crc_16(buffer[self._end : end], self._crc)
        self._end = end
        return self._crc


class FlacDemuxer:
    """See `Demuxer`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skipping = 0
        self._has_info = False
        self._has_frames = False
        """The metadata has passed."""
        self._num_header_bytes = 0
        self._head: _Head | None = None
        """Of the frame that the buffer begins with."""
        self._searched = 0
        self._whole = _Sum(0)
        """Of that frame."""
        self._later: _Sum | None = None
        """Of what may be the next one, where that one is damaged."""
        self._last, self._last_tagged = _Sum(0), _Sum(0)
        """Of the frame, if it is the last one: with all that is there, or without an old tag behind it."""

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
        while self._has_frames and self._read_frames(items):
            items += self._metadata()
        return items

    def end(self) -> list[Item]:
        """The last frame, if it is whole."""
        buffer, end = self._buffer, len(self._buffer)
        if self._head is None:
            return self._short_frame()
        if not end:
            return []
        if self._last.through(buffer, end):
            end -= OLD_TAG_BYTES
            if end <= 0 or not buffer.startswith(OLD_TAG, end) or self._last_tagged.through(buffer, end):
                return []
        data = bytes(buffer[:end])
        buffer.clear()
        self._head = None
        return [Packet(data)]

    def _short_frame(self) -> list[Item]:
        """The last frame where it is shorter than the longest head: one of digital silence is."""
        data = bytes(self._buffer)
        is_frame = self._has_frames and _read_head(data.ljust(_MAX_HEAD_BYTES, b"\0")) is not None
        if not is_frame or _crc_16(data):
            return []
        self._buffer.clear()
        return [Packet(data)]

    def _metadata(self) -> Iterator[Item]:
        """The blocks in front of the frames; what is not needed is skipped as it comes."""
        buffer = self._buffer
        while not self._has_frames and not self._skipping:
            tag = 0 if self._has_info else tag_length(buffer, 0)
            if tag is None:
                return
            if tag:
                self._skipping = max(0, tag - len(buffer))
                del buffer[:tag]
                continue
            if not self._has_info and not (buffer.startswith(_MAGIC) or _MAGIC.startswith(buffer)):
                raise StreamError("the stream is not FLAC, or its beginning is missing")
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

    def _read_frames(self, items: list[Item]) -> bool:
        """Until more bytes are needed (False), or another recording begins."""
        buffer = self._buffer
        while True:
            if self._head is None:
                if len(buffer) < _MAX_HEAD_BYTES:
                    return False
                self._head = _read_head(bytes(buffer[:_MAX_HEAD_BYTES]))
                if self._head is None:
                    self._drop_to_next()
                    if self._head is None:
                        return False
                self._searched, self._whole, self._later = 1, _Sum(0), None
                self._last, self._last_tagged = _Sum(0), _Sum(0)
            frame = self._next_frame()
            if frame is None:
                if len(buffer) > _MAX_FRAME_BYTES:
                    raise StreamError("the FLAC stream is damaged: a frame has no end")
                return False
            items.append(Packet(bytes(buffer[frame])))
            del buffer[: frame.stop]
            self._head = None
            if buffer.startswith(_MAGIC):
                self._has_info = self._has_frames = False
                self._num_header_bytes = len(buffer)
                return True

    def _next_frame(self) -> slice | None:
        """The frame that the buffer begins with, once its end is known; if it is damaged, the next one."""
        known, buffer = self._head, self._buffer
        assert known is not None
        expected = known.number + (known.num_samples if known.kind & 1 else 1)
        while (found := _BEGINNINGS.search(buffer, self._searched)) is not None:
            at = self._searched = found.start()
            if at + _MAX_HEAD_BYTES > len(buffer):
                return None
            self._searched += 1
            if buffer.startswith(_MAGIC, at):
                return slice(0, at)
            head = _read_head(bytes(buffer[at : at + _MAX_HEAD_BYTES]))
            if head is None:
                continue
            if head.kind == known.kind and head.number == expected:
                return slice(0, at)
            for each in (self._whole, self._later):
                if each is not None and each.through(buffer, at) == 0:
                    return slice(each.start, at)
            self._later = _Sum(at)
        self._searched = max(self._searched, len(buffer) - _MAX_HEAD_BYTES)
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


def _crc_16(data: bytes | bytearray, crc: int = 0) -> int:
    for byte in data:
        crc = crc << 8 & 0xFFFF ^ _CRC_16[crc >> 8 ^ byte]
    return crc
