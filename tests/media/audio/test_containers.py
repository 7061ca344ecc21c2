"""Files are recognised by their first bytes, and what is not on the list is not opened."""

from __future__ import annotations

from typing import Any

import av
import pytest
from sensorium.media.audio.containers import DECODERS, DEMUXERS, Container, sniff

HEADS: list[tuple[bytes, Container | None]] = [
    (b"RIFF\x24\x00\x00\x00WAVEfmt ", "wav"),
    (b"RF64\xff\xff\xff\xffWAVEds64", "wav"),
    (b"RIFF\x24\x00\x00\x00AVI LIST", "avi"),
    (b"RIFX\x24\x00\x00\x00AVI LIST", None),
    (b"FLV\x01\x05\x00\x00\x00\x09", "flv"),
    (b"FLV\x02\x05\x00\x00\x00\x09", None),
    (3 * (b"G\x40\x00\x10" + bytes(184)), "mpegts"),
    (3 * (b"\x00\x00\x00\x00G\x40\x00\x10" + bytes(184)), "mpegts"),
    (2 * (b"G\x40\x00\x10" + bytes(184)), None),
    (b"GGGGGGGG", None),
    (b"FORM\x00\x00\x00\x00AIFFCOMM", "aiff"),
    (b"FORM\x00\x00\x00\x00AIFCFVER", "aiff"),
    (b"FORM\x00\x00\x00\x008SVXVHDR", None),
    (b"fLaC\x00\x00\x00\x22", "flac"),
    (b"OggS\x00\x02", "ogg"),
    (b"\x1a\x45\xdf\xa3\x9f", "matroska"),
    (b"\x00\x00\x00\x1cftypM4A ", "mp4"),
    (b"\x00\x00\x00\x08wide\x00\x00", "mp4"),
    (b"\xff\xfb\x90\x64", "mp3"),
    (b"\xff\xf3\x90\x64", "mp3"),
    (b"\xff\xf1\x50\x80", "aac"),
    (b"\xff\xf9\x50\x80", "aac"),
    (b"\xff\xe0\x00\x00", None),
    (b"\x0b\x77\xda\xe0\x0c\x40", "ac3"),
    (b"\x0b\x77\x01\x7f\x34\x86", "eac3"),
    (b"#!AMR\n\x04", "amr"),
    (b"#!AMR-WB\n\x04", "amr"),
    (bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"), "asf"),
    (b"\x00\x00\x01\xba\x21", "mpeg"),
    (b"hello world, this is text", None),
    (b"#EXTM3U\n#EXT-X-VERSION:3\n", None),
    (b"ffconcat version 1.0\nfile /etc/passwd\n", None),
    (b"\xf8\x06iamf\x00\x00", None),
    (b"<?xml version='1.0'?><MPD>", None),
    (b"\x00", None),
    (b"", None),
]


@pytest.mark.parametrize(("head", "container"), HEADS)
def test_first_bytes_decide(head: bytes, container: Container | None) -> None:
    assert sniff(head + bytes(64)) == container


@pytest.mark.parametrize(("head", "container"), [pair for pair in HEADS if pair[1] not in {None, "mp4"}])
def test_id3_tags_before_the_file_are_skipped(head: bytes, container: Container) -> None:
    tag = b"ID3\x03\x00\x00\x00\x00\x01\x02" + bytes(130)
    with_footer = b"ID3\x04\x00\x10\x00\x00\x00\x05" + bytes(15)
    assert sniff(tag + head + bytes(64)) == container
    assert sniff(with_footer + tag + head + bytes(64)) == container


def test_what_follows_an_id3_tag_is_taken_for_mp3() -> None:
    assert sniff(b"ID3\x03\x00\x00\x00\x00\x00\x05" + bytes(100)) == "mp3"
    assert sniff(b"ID3\x03\x00\x00\x7f\x7f\x7f\x7f") == "mp3"
    assert sniff(b"ID3\x03\x00") is None


def test_a_file_of_nothing_but_id3_tags_is_not_read_to_its_end() -> None:
    class Counting(bytes):
        num_reads = 0

        def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 (as bytes has it)
            self.num_reads += 1
            return super().__getitem__(key)

    data = Counting(b"ID3\x04\x00\x00\x00\x00\x00\x00" * 10_000)
    assert sniff(data) == "mp3"
    assert data.num_reads < 100


def test_an_iso_file_with_iamf_is_not_opened() -> None:
    head = b"\x00\x00\x00\x1cftypisom"
    assert sniff(head + bytes(1000) + b"\x00\x00\x00\x20iacb\x01" + bytes(50)) is None
    assert sniff(head + bytes(1000) + b"iacb" + bytes(50)) == "mp4"


@pytest.mark.parametrize("name", sorted(DEMUXERS.values()))
def test_every_demuxer_exists(name: str) -> None:
    assert name in av.formats_available


def test_no_decoder_on_the_list_decodes_pictures() -> None:
    known = [av.Codec(name, "r") for name in sorted(DECODERS & av.codecs_available)]
    assert len(known) > 20
    assert {codec.type for codec in known} == {"audio"}


@pytest.mark.parametrize("num_frames", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("container", "head", "length"),
    [("mp3", b"\xff\xfb\x90\x00", 417), ("aac", b"\xff\xf1\x50\x80\x0c\x80\x00", 100)],
)
def test_what_looks_like_a_frame_by_chance_is_none(
    container: str, head: bytes, length: int, num_frames: int
) -> None:
    """Behind junk; three that follow each other are no chance."""
    data = b"junk" + num_frames * head.ljust(length, b"\0") + bytes(500)
    assert sniff(data) == (container if num_frames == 3 else None)
