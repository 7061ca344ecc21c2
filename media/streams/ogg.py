"""Ogg with Opus inside, page by page (RFC 3533, RFC 7845), also several streams in a chain.

The first Opus stream of the file is heard; others beside it (pictures, subtitles) are passed over. A page
with a wrong checksum is left out, as one that was lost; bytes between pages are searched for the next one.
What is padding at the end of a link follows from the position on its last page. Read next: `decoder.py`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from .opus import HEAD, OPUS_RATE, TAGS, is_same, num_frames
from .packets import MAX_HEADER_BYTES, MAX_PACKET_BYTES, Item, Packet, StreamError, Track

_MAGIC: Final = b"OggS"
_PAGE_HEAD: Final = 27
_CONTINUED, _FIRST, _LAST = 1, 2, 4
_NO_POSITION: Final = (1 << 64) - 1
_MAX_EMPTY_LINKS: Final = 64
"""Links without any audio that may follow each other: a chain of nothing else would go on for ever."""
MAX_PARTS: Final = 1000
"""Of one file: each costs as much as a file to open, some milliseconds, however short it is."""
_HEAD_BYTES: Final = range(19, 277)
"""An OpusHead; the longest has a table of 255 channels."""
_OTHERS: Final = {
    b"\x01vorbis": "Vorbis",
    b"\x7fFLAC": "FLAC",
    b"Speex   ": "Speex",
}
_OPUS_BEGINS: Final = re.compile(rb"OggS\0[\x02\x03\x06\x07].{20}\x01(.)" + HEAD, re.DOTALL)
"""A first page; it holds a head of less than 255 bytes, and nothing else."""
_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def checksum(page: bytes) -> int:
    """Ogg's CRC-32 of a page whose own field is zero: zlib's polynomial, with the bits turned round."""
    turned = zlib.crc32(page.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(turned.to_bytes(4, "little").translate(_REVERSED), "big")


def parts_by_decoder(data: bytes) -> list[bytes]:
    """A whole file, cut where an Opus stream begins that another decoder is needed for: libav's demuxer ends
    there. Raises StreamError for more than `MAX_PARTS`."""
    starts, known, end = [0], b"", 0
    for found in _OPUS_BEGINS.finditer(data):
        start, body = found.start(), found.end() - len(HEAD)
        head = data[body : body + found[1][0]]
        if known and start > end and not is_same(known, head):
            starts.append(start)
            if len(starts) > MAX_PARTS:
                raise StreamError(f"the file needs more than {MAX_PARTS} Opus decoders")
        if not known or start > end:  # else it is beside the one before
            known = head
        end = body + len(head)
    return [data[start:end] for start, end in pairwise([*starts, len(data)])]


@dataclass(slots=True)
class _Link:
    """The Opus stream that is heard."""

    serial: int
    position: int | None = None
    """Of the next packet, in frames at 48 kHz, once a page has told one."""
    partial: bytearray = field(default_factory=bytearray)
    """A packet that goes on with the next page."""
    is_partial: bool = False
    is_tagged: bool = False
    """The comments have passed; audio follows."""
    num_packets: int = 0


class OggDemuxer:
    """See `Demuxer`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._link: _Link | None = None
        self._other = ""
        """A codec that was met and is not served."""
        self._num_header_bytes = 0
        self._num_empty_links = 0

    def push(self, data: bytes) -> list[Item]:
        """See `Demuxer.push`."""
        self._buffer += data
        items: list[Item] = []
        start = 0
        while (size := self._page_size(start)) is not None:
            if size == 0:
                found = self._buffer.find(_MAGIC, start + 1)
                after = found if found >= 0 else max(start + 1, len(self._buffer) - len(_MAGIC) + 1)
                self._count_header(after - start)
                start = after
                continue
            page = bytes(self._buffer[start : start + size])
            if _is_whole(page):
                items += self._read(page)
                start += size
            else:
                start += 1
        del self._buffer[:start]
        return items

    def end(self) -> list[Item]:
        """Nothing: a packet is complete with its page."""
        return []

    def _page_size(self, start: int) -> int | None:
        """Bytes of the page at `start`; 0 if none begins there, None if there are too few bytes to know."""
        buffer = self._buffer
        head = buffer[start : start + len(_MAGIC)]
        if not _MAGIC.startswith(head):
            return 0
        if len(buffer) < start + _PAGE_HEAD:
            return None
        num_segments = buffer[start + _PAGE_HEAD - 1]
        table = start + _PAGE_HEAD
        if len(buffer) < table + num_segments:
            return None
        size = _PAGE_HEAD + num_segments + sum(buffer[table : table + num_segments])
        return size if len(buffer) >= start + size else None

    def _count_header(self, num_bytes: int) -> None:
        """Bytes that bring no audio."""
        self._num_header_bytes += num_bytes
        if self._num_header_bytes > MAX_HEADER_BYTES:
            raise StreamError(
                f"the Ogg stream carries {self._other}; only Opus is served"
                if self._other
                else f"no Opus audio came within {MAX_HEADER_BYTES} bytes of the Ogg stream"
            )

    def _read(self, page: bytes) -> Iterator[Item]:
        flags, serial = page[5], int.from_bytes(page[14:18], "little")
        body = _PAGE_HEAD + page[26]
        if flags & _FIRST:
            yield from self._begin(page[body:], serial)
            return
        link = self._link
        if link is None or serial != link.serial:
            if link is None and self._other:
                raise StreamError(f"the Ogg stream carries {self._other}; only Opus is served")
            self._count_header(len(page))
            return
        packets = list(_packets(link, page, is_continued=bool(flags & _CONTINUED)))
        if not link.is_tagged:
            self._count_header(len(page))
            if packets:
                link.is_tagged = True
                del packets[0]
        granule = int.from_bytes(page[6:14], "little")
        yield from self._audio(link, packets, granule, is_last=bool(flags & _LAST))

    def _begin(self, head: bytes, serial: int) -> Iterator[Item]:
        """A logical stream begins; it is ours if it is Opus, and ours has already brought audio."""
        if not head.startswith(HEAD):
            self._other = next((name for magic, name in _OTHERS.items() if head.startswith(magic)), "")
            self._other = self._other or "something else than Opus"
            self._count_header(len(head) + _PAGE_HEAD)
            return
        if self._link is not None and not self._link.num_packets:
            self._num_empty_links += 1
            if self._num_empty_links > _MAX_EMPTY_LINKS:
                raise StreamError(f"more than {_MAX_EMPTY_LINKS} Ogg streams in a row hold no audio")
        if len(head) not in _HEAD_BYTES or head[8] & 0xF0:
            raise StreamError("the Ogg stream's Opus header is damaged")
        self._link = _Link(serial)
        yield Track("opus", extradata=head, goes_on=True, time_base=(1, OPUS_RATE))

    def _audio(self, link: _Link, packets: list[bytes], granule: int, *, is_last: bool) -> Iterator[Item]:
        lengths = [num_frames(packet) for packet in packets]
        has_position = granule != _NO_POSITION
        if link.position is None and has_position and packets:
            # Before the last page, a position tells where the page's packets end; the last one's may lie
            # before that, and a stream of one page begins at 0.
            link.position = 0 if is_last else granule - sum(lengths)
        if link.position is not None and has_position and packets and not is_last:
            link.position = max(link.position, granule - sum(lengths))  # pages may have been lost
        for packet, length in zip(packets, lengths, strict=True):
            trim, stamp = 0, link.position
            if link.position is not None:
                link.position += length
                if is_last and has_position:
                    trim = min(max(link.position - granule, 0), length)
            link.num_packets += 1
            yield Packet(packet, trim, stamp)
        if link.num_packets:
            self._num_header_bytes = self._num_empty_links = 0


def _is_whole(page: bytes) -> bool:
    stored = int.from_bytes(page[22:26], "little")
    return page[4] == 0 and checksum(page[:22] + bytes(4) + page[26:]) == stored


def _packets(link: _Link, page: bytes, *, is_continued: bool) -> Iterator[bytes]:
    """The packets that end on the page."""
    table, start = page[_PAGE_HEAD : _PAGE_HEAD + page[26]], _PAGE_HEAD + page[26]
    # The rest of a packet whose beginning was lost is none, nor is a beginning whose rest was lost.
    skips = is_continued and not link.is_partial
    if not is_continued:
        link.partial.clear()
    length = 0
    for segment in table:
        length += segment
        if segment < 255:
            data = bytes(link.partial) + page[start : start + length]
            link.partial.clear()
            if not skips and data:
                yield data
            skips = False
            start += length
            length = 0
    link.is_partial = bool(table) and table[-1] == 255 and not skips
    # What is left over is kept, except of the comments, which nobody reads.
    if link.is_partial and link.is_tagged:
        link.partial += page[start : start + length]
        if len(link.partial) > MAX_PACKET_BYTES:
            raise StreamError(f"an Ogg packet is longer than {MAX_PACKET_BYTES} bytes")
    elif link.is_partial and not link.partial:
        link.partial += TAGS
