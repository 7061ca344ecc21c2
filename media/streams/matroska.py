"""WebM and Matroska as browsers record them: Opus or PCM packets out of an endless segment (RFC 9559).

Elements are read flat: a segment and its clusters are entered and never left, so that their sizes, which live
recorders do not know, are of no matter. The first audio track that is flagged default is decoded, or else the
first; blocks of others are skipped as they come and never kept. A new EBML header in the middle begins a new
recording. Read next: `decoder.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from .opus import OPUS_RATE
from .packets import MAX_HEADER_BYTES, MAX_PACKET_BYTES, Item, Packet, StreamError, Track, rounded

_EBML, _SEGMENT, _TRACKS, _CLUSTER = 0x1A45DFA3, 0x18538067, 0x1654AE6B, 0x1F43B675
_BLOCK_GROUP, _BLOCK, _SIMPLE_BLOCK, _DISCARD_PADDING = 0xA0, 0xA1, 0xA3, 0x75A2
_CLUSTER_TIME, _INFO, _TIME_SCALE = 0xE7, 0x1549A966, 0x2AD7B1
_IS_DEFAULT, _CODEC_DELAY = 0x88, 0x56AA
_TRACK_ENTRY, _TRACK_NUMBER, _TRACK_TYPE, _CODEC_ID, _CODEC_PRIVATE = 0xAE, 0xD7, 0x83, 0x86, 0x63A2
_ENCODINGS, _AUDIO, _RATE, _CHANNELS, _BITS = 0x6D80, 0xE1, 0xB5, 0x9F, 0x6264
_DOC_TYPE: Final = 0x4282
_ENTERED: Final = frozenset({_SEGMENT, _CLUSTER, _BLOCK_GROUP})
_KEPT: Final = frozenset({_EBML, _INFO, _TRACKS, _CLUSTER_TIME, _DISCARD_PADDING})
"""Read whole once they are there."""
_BLOCKS: Final = frozenset({_BLOCK, _SIMPLE_BLOCK})
_VIDEO_TYPE, _AUDIO_TYPE = b"\1", b"\2"
_DEFAULT_SCALE: Final = 1_000_000
"""Nanoseconds of a unit of time, where a segment states none."""
_NS: Final = 1_000_000_000
_MAX_BLOCK_BYTES: Final = 8 * MAX_PACKET_BYTES
_BLOCK_HEAD: Final = 11
"""A track number of up to 8 bytes, a time of two, flags."""


class _Element(NamedTuple):
    """Where an element is in the buffer; `size` None: not known, it ends with its parent."""

    id: int
    start: int
    size: int | None


class MatroskaDemuxer:
    """See `Demuxer`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._position = 0
        """Of the buffer's start in the stream."""
        self._skipping = 0
        """Bytes to come that nobody reads."""
        self._has_begun = False
        self._track: int | None = None
        self._rate = OPUS_RATE
        self._num_header_bytes = 0
        self._group_end: int | None = None
        """Where the block group ends that was entered, if its size is known."""
        self._held: list[Packet] = []
        """Frames of that group: what it says of them may come behind."""
        self._trim = 0
        self._scale_ns = _DEFAULT_SCALE
        self._cluster_time = 0
        self._delay = 0
        """Of the codec, by which its packets are early, in the segment's unit of time."""

    def push(self, data: bytes) -> list[Item]:
        """See `Demuxer.push`."""
        if self._track is None:
            self._num_header_bytes += len(data)
        if self._skipping:
            skipped = min(self._skipping, len(data))
            self._skipping -= skipped
            self._position += skipped
            data = data[skipped:]
        self._buffer += data
        items: list[Item] = []
        start = 0
        while (element := self._element(start)) is not None:
            if element.id != _EBML and not self._has_begun:
                raise StreamError("the stream is not WebM, or its beginning is missing")
            self._has_begun = True
            items += self._leave_group(self._position + start)
            if element.id in _ENTERED:
                self._enter(element)
                start = element.start
                continue
            if element.size is None:
                raise StreamError("a WebM element that must have a size has none")
            end = element.start + element.size
            if not self._is_wanted(element):
                start = min(end, len(self._buffer))
                self._skipping = end - start
                if self._skipping:
                    break
                continue
            if len(self._buffer) < end:
                break
            items += self._read(element.id, bytes(self._buffer[element.start : end]))
            start = end
        del self._buffer[:start]
        self._position += start
        items += self._leave_group(self._position)
        if self._track is None and self._num_header_bytes > MAX_HEADER_BYTES:
            raise StreamError(f"no audio track came within {MAX_HEADER_BYTES} bytes of the WebM stream")
        return items

    def end(self) -> list[Item]:
        """Nothing: a block is complete with its last byte."""
        return []

    def _element(self, start: int) -> _Element | None:
        """The element at `start`, or None if more bytes are needed to see that."""
        buffer = self._buffer
        if len(buffer) < start + 2:
            return None
        id_length = 9 - buffer[start].bit_length()
        if id_length > 4:
            raise StreamError(f"the WebM stream is damaged at byte {self._position + start}")
        at = start + id_length
        if len(buffer) <= at:
            return None
        size_length = 9 - buffer[at].bit_length()
        if size_length > 8:
            raise StreamError(f"the WebM stream is damaged at byte {self._position + at}")
        if len(buffer) < at + size_length:
            return None
        element_id = int.from_bytes(buffer[start:at])
        marked = int.from_bytes(buffer[at : at + size_length])
        size = marked ^ (1 << 7 * size_length)
        is_unknown = size == (1 << 7 * size_length) - 1
        return _Element(element_id, at + size_length, None if is_unknown else size)

    def _enter(self, element: _Element) -> None:
        if element.id == _CLUSTER and self._track is None:
            raise StreamError("the WebM stream has no audio track")
        if element.id == _BLOCK_GROUP:
            end = None if element.size is None else self._position + element.start + element.size
            self._group_end = end

    def _is_wanted(self, element: _Element) -> bool:
        """Whether an element is read; blocks of other tracks are not. More bytes may change a True."""
        assert element.size is not None
        if element.id in _KEPT:
            if element.size > MAX_HEADER_BYTES:
                raise StreamError(f"a WebM header is longer than {MAX_HEADER_BYTES} bytes")
            return True
        if element.id not in _BLOCKS:
            return False
        head_size = min(_BLOCK_HEAD, element.size)
        head = self._buffer[element.start : element.start + head_size]
        if len(head) < head_size:
            return True
        if _number(bytes(head))[0] != self._track:
            return False
        if element.size > _MAX_BLOCK_BYTES:
            raise StreamError(f"a WebM block is longer than {_MAX_BLOCK_BYTES} bytes")
        return True

    def _read(self, element_id: int, body: bytes) -> Iterator[Item]:
        if element_id == _EBML:
            self._begin(body)
        elif element_id == _TRACKS:
            yield self._read_tracks(body)
        elif element_id == _INFO:
            scale = int.from_bytes(dict(_children(body)).get(_TIME_SCALE, b""))
            self._scale_ns = scale or _DEFAULT_SCALE
        elif element_id == _CLUSTER_TIME:
            self._cluster_time = int.from_bytes(body)
        elif element_id == _DISCARD_PADDING:
            padding_ns = int.from_bytes(body, signed=True)
            self._trim = max(0, (padding_ns * self._rate + 500_000_000) // 1_000_000_000)
        elif element_id == _SIMPLE_BLOCK:
            yield from self._frames(body)
        else:
            self._held += self._frames(body)

    def _begin(self, header: bytes) -> None:
        kinds = [value for name, value in _children(header) if name == _DOC_TYPE]
        if kinds and kinds[0].rstrip(b"\0") not in {b"webm", b"matroska"}:
            raise StreamError("the stream is EBML, but neither WebM nor Matroska")
        self._track = None
        self._scale_ns = _DEFAULT_SCALE
        self._num_header_bytes = len(self._buffer)
        self._held.clear()
        self._group_end = None

    def _read_tracks(self, body: bytes) -> Track:
        entries = [dict(_children(entry)) for name, entry in _children(body) if name == _TRACK_ENTRY]
        kinds = [fields.get(_TRACK_TYPE, b"").lstrip(b"\0") for fields in entries]
        tracks = [fields for fields, kind in zip(entries, kinds, strict=True) if kind == _AUDIO_TYPE]
        if not tracks:
            raise StreamError("the WebM stream has no audio track")
        flagged = (fields for fields in tracks if fields.get(_IS_DEFAULT, b"\1").strip(b"\0"))
        fields = next(flagged, tracks[0])
        self._track = int.from_bytes(fields.get(_TRACK_NUMBER, b""))
        self._delay = rounded(int.from_bytes(fields.get(_CODEC_DELAY, b"")), self._scale_ns)
        track = _track(fields)
        self._rate = track.rate or OPUS_RATE
        zero_s = 0.0 if _VIDEO_TYPE in kinds else None
        return replace(track, time_base=(self._scale_ns, _NS), zero_s=zero_s)

    def _leave_group(self, position: int) -> Iterator[Item]:
        """Give out what a group held, once `position` is behind it; at once if nobody knows where it ends."""
        if self._held and (self._group_end is None or position >= self._group_end):
            *before, last = self._held
            yield from before
            yield last._replace(trim=self._trim)
            self._held.clear()
            self._trim = 0

    def _frames(self, block: bytes) -> list[Packet]:
        """The frames of a block, if it is of the track that is heard."""
        number, at = _number(block)
        if number != self._track:
            return []
        if len(block) < at + 3:
            raise StreamError("a WebM block is damaged")
        lacing = block[at + 2] >> 1 & 3
        first, *others = [block[at + 3 :]] if not lacing else _laced(block[at + 3 :], lacing)
        stamp = self._cluster_time + int.from_bytes(block[at : at + 2], signed=True) - self._delay
        return [Packet(first, stamp=stamp), *map(Packet, others)]


def _track(fields: dict[int, bytes]) -> Track:
    if _ENCODINGS in fields:
        raise StreamError("the WebM stream's audio is compressed once more or encrypted")
    codec = fields.get(_CODEC_ID, b"").rstrip(b"\0").decode("ascii", "replace")
    sound = dict(_children(fields.get(_AUDIO, b"")))
    rate = round(_float(sound.get(_RATE, struct.pack(">f", 8000.0))))
    num_channels = int.from_bytes(sound.get(_CHANNELS, b"\1"))
    bits = int.from_bytes(sound.get(_BITS, b""))
    match codec, bits:
        case "A_OPUS", _:
            return Track("opus", extradata=fields.get(_CODEC_PRIVATE, b""))
        case "A_PCM/FLOAT/IEEE", 32:
            return Track("pcm_f32le", rate=rate, num_channels=num_channels)
        case "A_PCM/INT/LIT", 16:
            return Track("pcm_s16le", rate=rate, num_channels=num_channels)
        case _:
            raise StreamError(f"the WebM stream carries {codec[:40]!r}; Opus and PCM are served")


def _children(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a small one that is there as a whole."""
    at = 0
    while at < len(body):
        id_length = 9 - body[at].bit_length()
        name = int.from_bytes(body[at : at + id_length])
        at += id_length
        if id_length > 4 or at >= len(body):
            raise StreamError("a WebM header is damaged")
        size, length = _number(body[at : at + 8])
        at += length
        if at + size > len(body):
            raise StreamError("a WebM header is damaged")
        yield name, body[at : at + size]
        at += size


def _number(data: bytes) -> tuple[int, int]:
    """A number of variable length at the start, and how many bytes it takes."""
    length = 9 - data[0].bit_length() if data else 9
    if length > 8 or len(data) < length:
        raise StreamError("a number in the WebM stream is damaged")
    return int.from_bytes(data[:length]) ^ (1 << 7 * length), length


def _float(data: bytes) -> float:
    if len(data) not in {4, 8}:
        raise StreamError("a WebM header is damaged")
    value: float = struct.unpack(">f" if len(data) == 4 else ">d", data)[0]
    if not 0 < value < 1e9:
        raise StreamError("the WebM stream has an impossible sample rate")
    return value


def _laced(data: bytes, lacing: int) -> list[bytes]:
    """The frames of a block that has several: with Xiph's sizes (1), all alike (2), or EBML's sizes (3)."""
    if not data:
        raise StreamError("a WebM block is damaged")
    num_frames, at = data[0] + 1, 1
    sizes: list[int] = []
    if lacing == 2:
        sizes = [(len(data) - 1) // num_frames] * num_frames
    else:
        for index in range(num_frames - 1):
            if lacing == 1:
                size = 0
                while at < len(data) and data[at] == 255:
                    size += 255
                    at += 1
                size += data[at] if at < len(data) else 0
                at += 1
            else:
                size, length = _number(data[at : at + 8])
                at += length
                if index:
                    size += sizes[-1] - ((1 << 7 * length - 1) - 1)
            sizes.append(size)
        sizes.append(len(data) - at - sum(sizes))
    if min(sizes) < 0 or at + sum(sizes) > len(data):
        raise StreamError("a WebM block is damaged")
    frames = []
    for size in sizes:
        frames.append(data[at : at + size])
        at += size
    return frames
