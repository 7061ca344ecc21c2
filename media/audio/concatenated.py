"""Files that are several, one after the other: MP3s with tags between them, others with headers of their own.

libav reads such a file as one, and gets lost at the seams: it takes a tag for the beginning of a frame, which
it then cannot decode, what tells of padding for sound, another recording's frames for damaged ones, and the
second of three WebMs for the last. Used by `media/audio/decode.py`; Ogg's chains are
`media/streams/ogg.py`'s, and live streams are read so in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Final

from ..streams.id3 import tag_length
from ..streams.mp3 import HEAD_BYTES, frame_bytes, is_info_frame
from .sized_containers import beginnings, in_bytes

MOST_PARTS: Final = 2000
"""Whatever is behind that many is read as one."""
_TAG_BEGINS: Final = re.compile(rb"ID3[\x02-\x04][\x00-\x0f].[\x00-\x7f]{4}", re.DOTALL)
_FLAC_BEGINS: Final = re.compile(rb"fLaC[\x00\x80]\x00\x00\x22")
_EBML_BEGINS: Final = re.compile(rb"\x1a\x45\xdf\xa3")
_IS_WEBM: Final = re.compile(rb".{1,64}?\x42\x82.{1,8}?(?:webm|matroska)", re.DOTALL)
_EBML_BYTES: Final = 90
"""Of a head, that say what it is."""
_INFO_TAGS: Final = re.compile(rb"Xing|Info|VBRI")
_AMR_MAGICS: Final = (b"#!AMR\n", b"#!AMR-WB\n")
_AMR_BYTES: Final = (
    (13, 14, 16, 18, 20, 21, 27, 32, 6, 1, 1, 1, 1, 1, 1, 1),
    (18, 24, 33, 37, 41, 47, 51, 59, 61, 6, 1, 1, 1, 1, 1, 1),
)
"""Of a frame, by its type (RFC 4867, section 5.3), narrow and wide."""
_SIDES: Final = (9, 17, 32)
"""Bytes between a frame's head and what it tells of padding, by its kind."""


def joined_parts(data: bytes, container: str) -> list[bytes]:
    """The files in a file, each for a decoder of its own; of another container than these itself."""
    match container:
        case "mp3":
            data = _untagged(data)
            places = _beginnings(data)
        case "flac":
            places = (found.start() for found in _FLAC_BEGINS.finditer(data, 1))
        case "matroska":
            begins = (found.end() for found in _EBML_BEGINS.finditer(data, 1))
            places = (end - 4 for end in begins if _IS_WEBM.match(data[end : end + _EBML_BYTES]))
        case "wav" | "aiff" | "au" | "w64" | "caf":
            places = beginnings(data, container)
        case "amr":
            places = _beginnings_of_amr(data)
        case _:
            return [data]
    starts = [0, *islice(places, MOST_PARTS - 1), len(data)]
    return [in_bytes(data[start:end], container) for start, end in pairwise(starts)]


def _untagged(data: bytes) -> bytes:
    """Without tags that lie in front of a frame, but for those in front of the first one."""
    end = _tags_end(data)
    kept, start = [], 0
    for found in _TAG_BEGINS.finditer(data, end + 1):
        after = found.start() + (tag_length(data, found.start()) or 0)
        if found.start() >= start and frame_bytes(data[after : after + HEAD_BYTES]):
            kept.append(data[start : found.start()])
            start = after
    return b"".join((*kept, data[start:])) if kept else data


def _tags_end(data: bytes) -> int:
    """Behind the tags that the file begins with."""
    end = 0
    while length := tag_length(data, end) or 0:
        end += length
    return end


def _beginnings(data: bytes) -> Iterator[int]:
    """Where a frame tells of padding, unless it is the first one of the file, or what is before is junk."""
    start = _tags_end(data)
    length = frame_bytes(data[start : start + HEAD_BYTES])
    is_first = not length or is_info_frame(data[start : start + length])
    for found in _INFO_TAGS.finditer(data):
        for side in _SIDES:
            start = found.start() - side - HEAD_BYTES
            length = frame_bytes(data[start : start + HEAD_BYTES]) if start >= 0 else 0
            if length and is_info_frame(data[start : start + length]):
                if not is_first:
                    yield start
                is_first = False
                break


def _beginnings_of_amr(data: bytes) -> Iterator[int]:
    """Where a magic number stands in place of a frame; inside one it is speech."""
    at = 0
    while at < len(data):
        kind = next((kind for kind, magic in enumerate(_AMR_MAGICS) if data.startswith(magic, at)), None)
        if kind is not None:
            if at:
                yield at
            sizes = _AMR_BYTES[kind]
            at += len(_AMR_MAGICS[kind])
            continue
        at += sizes[data[at] >> 3 & 15]
