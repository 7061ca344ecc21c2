"""Which files we open at all: containers recognised by their first bytes, and the codecs allowed inside.

Nothing is probed: the recognised container names the one demuxer that may read the file, so that a decoder
library's rarely used parsers (where the advisories are) never see a client's bytes. Read next:
`media/audio/decode.py`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, Literal

import av

from ..streams import adts, mp3
from ..streams.id3 import tag_length
from .sized_containers import AU_MAGIC, CAF_MAGIC, W64_MAGIC

Container = Literal[
    "wav",
    "aiff",
    "au",
    "w64",
    "caf",
    "flac",
    "mp3",
    "aac",
    "mp4",
    "matroska",
    "ogg",
    "amr",
    "asf",
    "ac3",
    "eac3",
    "mpeg",
    "mpegts",
    "avi",
    "flv",
]

DEMUXERS: Final[dict[Container, str]] = {
    "wav": "wav",
    "aiff": "aiff",
    "au": "au",
    "w64": "w64",
    "caf": "caf",
    "flac": "flac",
    "mp3": "mp3",
    "aac": "aac",
    "mp4": "mov",
    "matroska": "matroska",
    "ogg": "ogg",
    "amr": "amr",
    "asf": "asf",
    "ac3": "ac3",
    "eac3": "eac3",
    "mpeg": "mpeg",
    "mpegts": "mpegts",
    "avi": "avi",
    "flv": "flv",
}
"""libavformat's name of the one demuxer for each container."""

SUPPORTED: Final = (
    "WAV, W64, AIFF, AU, CAF, FLAC, MP3, AAC, M4A, MP4, MOV, WebM, Matroska, OGG, Opus, AMR, WMA, AC-3, "
    "MPEG, MPEG-TS, AVI and FLV"
)
"""For messages to clients."""

DECODERS: Final = frozenset(
    {
        *("aac", "aac_latm", "ac3", "eac3", "alac", "flac", "opus", "libopus", "vorbis", "libvorbis"),
        *("mp1", "mp1float", "mp2", "mp2float", "mp3", "mp3float"),
        *("amrnb", "amrwb", "libopencore_amrnb", "libopencore_amrwb", "wmav1", "wmav2", "wmapro"),
        *("pcm_u8", "pcm_s8", "pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le", "pcm_s32be"),
        *("pcm_f32le", "pcm_f32be", "pcm_f64le", "pcm_f64be", "pcm_mulaw", "pcm_alaw"),
        *("adpcm_ms", "adpcm_ima_wav", "adpcm_ima_qt"),
    }
)
"""libavcodec decoders that may be opened: audio only, so a video stream is never decoded."""

_ASF_HEADER: Final = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
_MP4_FIRST_BOXES: Final = frozenset({b"ftyp", b"moov", b"moof", b"mdat", b"wide", b"free", b"skip", b"styp"})
_MAX_AC3_BITSTREAM_ID: Final = 10
_MAX_ID3_TAGS: Final = 16
"""Files have one or two. A file of nothing but empty tags would keep the caller's loop busy for seconds."""
_MAX_STREAMS: Final = 64
"""In one file."""
_MAX_JUNK_BYTES: Final = 2048
"""In front of the first whole frame: what is left of a cut one is less. It takes up to 3 ms to look at."""
_NUM_FRAMES: Final = 3
_SYNC: Final = re.compile(rb"\xff(?=[\xe0-\xfe])")
_FRAMES: Final[tuple[tuple[Container, Callable[[bytes], int], int], ...]] = (
    ("mp3", mp3.frame_bytes, mp3.HEAD_BYTES),
    ("aac", adts.frame_bytes, adts.HEAD_BYTES),
)
_MAGIC: Final[tuple[tuple[bytes, Container], ...]] = (
    (W64_MAGIC, "w64"),
    (AU_MAGIC, "au"),
    (CAF_MAGIC, "caf"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"\x1a\x45\xdf\xa3", "matroska"),
    (b"#!AMR\n", "amr"),
    (b"#!AMR-WB\n", "amr"),
    (_ASF_HEADER, "asf"),
    (b"\x00\x00\x01\xba", "mpeg"),
    (b"FLV\x01", "flv"),
)
_TS_SYNC: Final = 0x47
_TS_STRIDES: Final = ((0, 188), (4, 192))
"""Where the first packet of a transport stream begins, and their length; Blu-ray's have a time in front."""
_NUM_TS_PACKETS: Final = 3
"""That begin with the sync byte, which is a G in a text."""


def sniff(data: bytes) -> Container | None:
    """The container `data` starts with (after ID3 tags), or None if it is not one we open."""
    start = _skip_id3(data)
    head = data[start : start + 16]
    for magic, container in _MAGIC:
        if head.startswith(magic):
            return container
    if head[:4] in {b"RIFF", b"RIFX", b"RF64"} and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    if head[:4] == b"FORM" and head[8:12] in {b"AIFF", b"AIFC"}:
        return "aiff"
    if head[4:8] in _MP4_FIRST_BOXES:
        # An ISO file may carry IAMF, whose parser is reached by this box alone (version 1, else an error).
        return None if b"iacb\x01" in data else "mp4"
    if _is_transport_stream(data, start):
        return "mpegts"
    if head[:2] == b"\x0b\x77" and len(head) > 5:
        return "ac3" if head[5] >> 3 <= _MAX_AC3_BITSTREAM_ID else "eac3"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        # The two layer bits are 00 in AAC's ADTS header and never in MPEG audio's.
        return "mp3" if head[1] & 0x06 else "aac" if head[1] & 0xF6 == 0xF0 else None
    return "mp3" if start else _framed(data)[0]


def junk_before(data: bytes, container: Container) -> int:
    """Bytes in front of the first frame of a file that `sniff` has found to be such a container."""
    if container not in ("mp3", "aac") or data[:1] == b"\xff" or data.startswith(b"ID3"):
        return 0
    return _framed(data)[1]


@contextmanager
def opened(
    source: io.BytesIO, demuxer: str, decoders: Collection[str]
) -> Iterator[av.container.InputContainer]:
    """A file for libav, with no other demuxer and no other decoders. No file leads to another: no protocol is
    allowed, the bytes are all there is. libav's errors come as they are."""
    options = {
        "format_whitelist": demuxer,
        "codec_whitelist": ",".join(sorted(decoders)),
        "protocol_whitelist": "none",
        "max_streams": str(_MAX_STREAMS),
    }
    with av.open(source, "r", format=demuxer, container_options=options, metadata_errors="ignore") as file:
        yield file


def demuxed(
    file: av.container.InputContainer, stream: av.AudioStream | av.VideoStream
) -> Iterator[av.Packet]:
    """The packets of one stream, the empty one at the end too. Those of others are not even read whole.

    Behind them PyAV raises IndexError where another stream came up in the middle of the file, as it may in
    MPEG and FLV.
    """
    for other in file.streams:
        if other.index != stream.index:
            other.discard = av.stream.Discard.all
    try:
        yield from file.demux(stream)
    except IndexError:
        return


def _is_transport_stream(data: bytes, start: int) -> bool:
    for offset, length in _TS_STRIDES:
        places = range(start + offset, start + offset + _NUM_TS_PACKETS * length, length)
        if all(data[place : place + 1] == bytes([_TS_SYNC]) for place in places):
            return True
    return False


def _framed(data: bytes) -> tuple[Container | None, int]:
    """Of a file that was cut out of a stream, or has junk in front: three frames that follow each other."""
    for found in _SYNC.finditer(data, 0, _MAX_JUNK_BYTES):
        for container, frame_bytes, head_bytes in _FRAMES:
            at, count = found.start(), 0
            while count < _NUM_FRAMES and (length := frame_bytes(data[at : at + head_bytes])):
                at, count = at + length, count + 1
            if count == _NUM_FRAMES:
                return container, found.start()
    return None, 0


def _skip_id3(data: bytes) -> int:
    """Position after the ID3v2 tags at the start."""
    position = 0
    for _ in range(_MAX_ID3_TAGS):
        if data.startswith(b"ID3", position):
            position += tag_length(data, position) or 0
    return position
