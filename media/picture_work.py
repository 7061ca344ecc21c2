"""What decoding a picture takes beyond its pixels, counted in the file before anything is decoded.

A header says how many pixels a file has, not how often each of them is computed (scans of a JPEG), nor how many
records a reader goes through one by one (segments, chunks, strips). Each count has a limit far above what
cameras and programs write, and far below what keeps a processor busy for seconds. What no count shows (frames
of AV1 that are never displayed, packets of JPEG 2000) ends by the processor time that one job may take.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from ..protocols.errors import TooLargeError

PNG: Final = b"\x89PNG\r\n\x1a\n"
JPEG: Final = b"\xff\xd8\xff"
MAX_SEGMENTS: Final = 2_000
"""Of a JPEG in front of its first scan. A large profile takes 255 of them, 20 MB of metadata 320."""
MAX_CHUNKS: Final = 20_000
"""Of a PNG. 20 MB in chunks of 8 KB are 2,560."""
MAX_STRIPS: Final = 50_000
"""Strips or tiles of a TIFF: fewer than the lines of any scan."""
MAX_ICONS: Final = 256
"""In one ICO."""
MAX_SCANNED_PIXELS: Final = 1_280_000_000
"""Pixels of a JPEG times its scans: a scan of 64 megapixels takes 0.08 s. Encoders write 10 scans, few 20."""
_SCAN: Final = b"\xff\xda"
_STANDALONE: Final = frozenset((0x01, *range(0xD0, 0xD9)))
"""JPEG markers without a length."""
_TIFF: Final = {b"II*\0": "<", b"MM\0*": ">"}
_STRIP_TAGS: Final = frozenset((273, 324))
"""StripOffsets and TileOffsets: as many values as there are parts."""
_ICO: Final = b"\0\0\1\0"


def check_records(data: bytes) -> None:
    """Raise TooLargeError (param `image`) for a picture of more records than its format's limit."""
    if data.startswith(JPEG):
        _check("JPEG", "segments before its first scan", jpeg_segments(data), MAX_SEGMENTS)
    elif data.startswith(PNG):
        _check("PNG", "chunks", _png_chunks(data, 0), MAX_CHUNKS)
    elif data[:4] in _TIFF:
        _check("TIFF", "strips or tiles", range(_num_strips(data)), MAX_STRIPS)
    elif data.startswith(_ICO):
        (count,) = struct.unpack_from("<H", data.ljust(6, b"\0"), 4)
        _check("ICO", "pictures", range(count), MAX_ICONS)
        _check("ICO", "chunks of PNG", _png_chunks(data, data.find(PNG)), MAX_CHUNKS)


def check_scans(data: bytes, height: int, width: int) -> None:
    """Raise TooLargeError (param `image`) for a JPEG with more scans than one of its size may have."""
    most = max(1, MAX_SCANNED_PIXELS // (height * width))
    if data.startswith(JPEG) and (count := data.count(_SCAN)) > most:
        raise _too_large(
            f"The JPEG has {count} scans; at {width} x {height} pixels the limit is {most}. Save it again as a "
            "baseline JPEG."
        )


def jpeg_segments(data: bytes) -> Iterator[int]:
    """Where each segment of a JPEG in front of its first scan begins, and that scan. Fill bytes count as
    segments: a reader looks at each. Ends early where no marker is."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        yield at
        kind = data[at + 1]
        if kind == _SCAN[1]:
            return
        if kind == 0xFF:
            at += 1
        elif kind in _STANDALONE:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4])


def _png_chunks(data: bytes, start: int) -> Iterator[int]:
    at = start + len(PNG) if start >= 0 else len(data)
    while at + 12 <= len(data):
        yield at
        at += 12 + int.from_bytes(data[at : at + 4])


def _num_strips(data: bytes) -> int:
    """Of a TIFF's first picture, as its directory says."""
    order = _TIFF[data[:4]]
    try:
        (start,) = struct.unpack_from(order + "I", data, 4)
        (count,) = struct.unpack_from(order + "H", data, start)
        fields = [struct.unpack_from(order + "HHI", data, start + 2 + 12 * index) for index in range(count)]
    except struct.error:
        return 0  # cut off, as the reader will say
    return max((number for tag, _, number in fields if tag in _STRIP_TAGS), default=0)


def _check(kind: str, what: str, found: Iterator[int] | range, most: int) -> None:
    """Counts no further than the limit."""
    if sum(1 for _ in zip(range(most + 1), found, strict=False)) > most:
        raise _too_large(f"The {kind} has more than the limit of {most} {what}.")


def _too_large(message: str) -> TooLargeError:
    return TooLargeError(message, param="image")
