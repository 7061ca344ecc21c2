"""Ogg taken apart: lost pages, other streams beside ours, chains without sound."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from sensorium.media.streams.ogg import OggDemuxer, checksum
from sensorium.media.streams.opus import num_frames
from sensorium.media.streams.packets import MAX_HEADER_BYTES, Packet, StreamError
from support.sound_streams import ogg, ogg_pages, streamed, voice

HEAD = b"OpusHead" + bytes.fromhex("01 01 3801 80bb0000 0000 00")
SECOND = ogg(voice(1.0))


def page(*packets: bytes, flags: int = 0, serial: int = 1, table: bytes | None = None) -> bytes:
    if table is None:
        table = b"".join(b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255]) for packet in packets)
    head = b"OggS\0" + struct.pack("<BqII", flags, 0, serial, 0)
    rest = bytes([len(table)]) + table + b"".join(packets)
    return head + struct.pack("<I", checksum(head + bytes(4) + rest)) + rest


def test_a_damaged_page_is_lost_and_no_other() -> None:
    pages = list(ogg_pages(ogg(voice(3.0))))
    assert len(pages) > 4
    pages[3] = pages[3][:-1] + bytes([pages[3][-1] ^ 1])
    lost = streamed(b"".join(pages))
    assert len(lost) == 3 * 16_000
    assert float(np.abs(lost[16_500:31_000]).max()) < 1e-3, "the second that it held is silent"
    assert float(np.abs(lost[:16_000]).mean()) > 0.1 < float(np.abs(lost[32_000:]).mean())


def test_what_lies_between_pages_is_passed_over() -> None:
    first, *rest = ogg_pages(SECOND)
    assert len(streamed(first + b"OggS? no, junk" + b"".join(rest))) == 16_000


def test_streams_beside_ours_are_not_heard() -> None:
    first, *rest = ogg_pages(SECOND)
    other = page(b"\x80theora", flags=2, serial=9) + page(b"picture", serial=9)
    assert len(streamed(first + other + b"".join(rest))) == 16_000


def test_a_packet_goes_on_over_pages() -> None:
    demuxer = OggDemuxer()
    demuxer.push(page(HEAD, flags=2) + page(b"OpusTags"))
    assert demuxer.push(page(b"a", bytes(510), table=b"\1\xff\xff")) == [Packet(b"a", stamp=-960)]
    assert demuxer.push(page(b"end", flags=1)) == [Packet(bytes(510) + b"end", stamp=0)]
    assert demuxer.push(page(b"rest of what was lost", b"whole", flags=1)) == [Packet(b"whole", stamp=480)]


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\x01vorbis" + bytes(23), "carries Vorbis; only Opus"),
        (b"\x7fFLAC" + bytes(40), "carries FLAC; only Opus"),
        (b"fishead\0", "something else than Opus"),
        (b"OpusHead\xff" + bytes(10), "header is damaged"),
        (b"OpusHead", "header is damaged"),
    ],
)
def test_other_codecs_are_named(first: bytes, reason: str) -> None:
    with pytest.raises(StreamError, match=reason):
        OggDemuxer().push(page(first, flags=2) + page(b"more"))


def test_endless_chains_without_sound_end() -> None:
    chain = [page(HEAD, flags=2, serial=n) + page(b"OpusTags", serial=n) for n in range(100)]
    assert len(OggDemuxer().push(b"".join(chain[:64]))) == 64
    with pytest.raises(StreamError, match="in a row hold no audio"):
        OggDemuxer().push(b"".join(chain))


def test_endless_comments_end() -> None:
    more = page(bytes(255 * 200), table=b"\xff" * 200)
    assert len(OggDemuxer().push(page(HEAD, flags=2) + 10 * more)) == 1
    with pytest.raises(StreamError, match=f"within {MAX_HEADER_BYTES} bytes"):
        OggDemuxer().push(page(HEAD, flags=2) + 50 * more)


def test_pages_of_nothing_cost_little_and_are_passed_over() -> None:
    demuxer = OggDemuxer()
    first, *rest = ogg_pages(SECOND)
    assert len(demuxer.push(first + page() * 500)) == 1
    assert len([item for item in demuxer.push(b"".join(rest)) if isinstance(item, Packet)]) > 40


@pytest.mark.parametrize(
    ("packet", "length"),
    [(b"", 0), (b"\x78", 960), (b"\x79", 1920), (b"\x7b\x03", 2880), (b"\x7b", 0), (b"\x1b\x3f", 0)],
)
def test_the_length_of_a_packet(packet: bytes, length: int) -> None:
    assert num_frames(packet) == length
