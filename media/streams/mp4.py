"""MP4 as browsers record it: AAC or Opus, fragment by fragment (ISO/IEC 14496-12).

The first audio track that is enabled is decoded, or else the first. A fragment's `moof`, and a `moov` that
stands in front of its sound, say where in the stream samples lie; they are taken out as they come, and the
bytes between them, pictures most often, are never kept. A file whose index is behind its sound is no stream
and is refused by name. Read next: `decoder.py`; boxes are `mp4_boxes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from .mp4_boxes import (
    Sample,
    TrackInfo,
    num_announced,
    num_indexed,
    read_fragment,
    read_indexed,
    read_track,
)
from .packets import MAX_HEADER_BYTES, MAX_PACKET_BYTES, Item, Packet, StreamError

_KEPT: Final = frozenset({b"moov", b"moof"})
_FIRST: Final = frozenset({b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"sidx"})
_MAX_INDEX_BYTES: Final = 4 * MAX_HEADER_BYTES
_IS_FILE: Final = "the MP4 has its sound before its index: it is a file, not a stream"
_MAX_SAMPLES: Final = 1 << 16
"""Samples that may be announced and have not come: half an hour of AAC."""


class _Box(NamedTuple):
    """What begins at the buffer's start; `end` None: it goes on to the end of the stream."""

    kind: bytes
    body: int
    end: int | None


class Mp4Demuxer:
    """See `Demuxer`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._position = 0
        """Of the buffer's start in the stream."""
        self._box_end = 0
        """Where the box ends whose inside is passing by."""
        self._has_begun = False
        self._num_header_bytes = 0
        self._track: TrackInfo | None = None
        self._num_announced = 0
        """Samples of all fragments and tracks."""
        self._time = 0
        """When the next fragment goes on, unless it says so."""
        self._samples: list[Sample] = []
        """Announced: a heap, the next place first."""

    def push(self, data: bytes) -> list[Item]:
        """See `Demuxer.push`."""
        self._buffer += data
        if self._track is None:
            self._num_header_bytes += len(data)
            if self._num_header_bytes > _MAX_INDEX_BYTES:
                raise StreamError(f"no audio track came within {_MAX_INDEX_BYTES} bytes of the MP4 stream")
        items: list[Item] = []
        while True:
            if self._position < self._box_end:
                items += self._pass_by()
                if self._position < self._box_end:
                    return items
            box = self._next_box()
            if box is None:
                return items
            if box.kind in _KEPT:
                if box.end is None or box.end - self._position > _MAX_INDEX_BYTES:
                    raise StreamError(f"an index of the MP4 stream is longer than {_MAX_INDEX_BYTES} bytes")
                if len(self._buffer) < box.end - self._position:
                    return items
                body = bytes(self._buffer[box.body : box.end - self._position])
                items += self._read_index(box.kind, body)
                self._drop(box.end - self._position)
            else:
                if box.kind == b"mdat" and self._track is None:
                    raise StreamError(_IS_FILE)
                self._box_end = (1 << 62) if box.end is None else box.end
                self._drop(box.body)

    def end(self) -> list[Item]:
        """Nothing: a sample is complete with its last byte."""
        return []

    def _next_box(self) -> _Box | None:
        buffer = self._buffer
        if len(buffer) < 8:
            return None
        size, kind, body = int.from_bytes(buffer[:4]), bytes(buffer[4:8]), 8
        if not self._has_begun and kind not in _FIRST:
            raise StreamError("the stream is not MP4, or its beginning is missing")
        self._has_begun = True
        if size == 1:
            if len(buffer) < 16:
                return None
            size, body = int.from_bytes(buffer[8:16]), 16
        if size and size < body:
            raise StreamError(f"the MP4 stream is damaged at byte {self._position}")
        return _Box(kind, body, self._position + size if size else None)

    def _read_index(self, kind: bytes, body: bytes) -> Iterator[Item]:
        if kind == b"moov":
            self._track = read_track(body)
            self._samples.clear()
            self._time = 0
            yield self._track.track
            end = self._position + len(body)
            self._announce(num_indexed(self._track.table), read_indexed(self._track.table), first=end)
            return
        if self._track is None:
            raise StreamError("an MP4 fragment came before its index")
        self._announce(num_announced(body), read_fragment(body, self._track, self._position, self._time))

    def _announce(self, count: int, samples: Iterator[Sample], *, first: int = -(1 << 62)) -> None:
        """Samples to come, none of which may lie before `first`; `count` of all tracks."""
        self._num_announced += count
        if self._num_announced > self._position + _MAX_SAMPLES:
            raise StreamError(f"an index of the MP4 stream announces more than {_MAX_SAMPLES} samples")
        for sample in samples:
            if sample.place < first:
                raise StreamError(_IS_FILE)
            heappush(self._samples, sample)
            self._time = sample.time + sample.length
            if len(self._samples) > _MAX_SAMPLES:
                raise StreamError(f"more than {_MAX_SAMPLES} samples of the MP4 stream are announced")

    def _pass_by(self) -> Iterator[Item]:
        """Take out the samples of a box whose bytes are here, and drop the rest."""
        here = min(self._box_end, self._position + len(self._buffer))
        while self._samples:
            place, size, time, _ = self._samples[0]
            if place < self._position:
                heappop(self._samples)  # before its fragment, or twice: nothing of it can be had
                continue
            if size > MAX_PACKET_BYTES:
                raise StreamError(f"a sample of the MP4 stream is longer than {MAX_PACKET_BYTES} bytes")
            if place + size > here:
                break
            heappop(self._samples)
            start = place - self._position
            assert self._track is not None
            data = bytes(self._buffer[start : start + size])
            yield Packet(data, stamp=time + self._track.shift)
            self._drop(start + size)
        waits_for = self._samples[0].place if self._samples else here
        self._drop(max(0, min(here, waits_for) - self._position))

    def _drop(self, num_bytes: int) -> None:
        del self._buffer[:num_bytes]
        self._position += num_bytes
