"""What decoding a picture takes beyond its pixels, counted in the file before anything is decoded.

A header says how many pixels a file has, not how often each of them is computed (scans of a JPEG), nor how
many records a reader goes through one by one (segments, chunks, strips). Each count has a limit far above
what cameras and programs write, and far below what keeps a processor busy for seconds. What no count shows
(frames of AV1 that are never displayed) ends by the processor time that one job may take.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from ...protocols.errors import TooLargeError
from .jpeg import JPEG, SCAN, jpeg_segments

PNG: Final = b"\x89PNG\r\n\x1a\n"
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
_TIFF: Final = {
    b"II*\0": ("<", 4, "I", "H", "HHI", 12),
    b"MM\0*": (">", 4, "I", "H", "HHI", 12),
    b"II+\0": ("<", 8, "Q", "Q", "HHQ", 20),
    b"MM\0+": (">", 8, "Q", "Q", "HHQ", 20),
}
"""By their first bytes: order, place of the directory's address, that address, number of fields, field, its
length. The second two are BigTIFF."""
_MAX_FIELDS: Final = 4_096
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
    if data.startswith(JPEG) and (count := data.count(SCAN)) > most:
        raise _too_large(
            f"The JPEG has {count} scans; at {width} x {height} pixels the limit is {most}. Save it again as "
            "a baseline JPEG."
        )


def _png_chunks(data: bytes, start: int) -> Iterator[int]:
    at = start + len(PNG) if start >= 0 else len(data)
    while at + 12 <= len(data):
        yield at
        at += 12 + int.from_bytes(data[at : at + 4])


def _num_strips(data: bytes) -> int:
    """Of a TIFF's first picture, as its directory says."""
    order, at, address, number, field, length = _TIFF[data[:4]]
    try:
        (start,) = struct.unpack_from(order + address, data, at)
        (count,) = struct.unpack_from(order + number, data, start)
        first = start + struct.calcsize(order + number)
        places = range(first, first + length * min(count, _MAX_FIELDS), length)
        fields = [struct.unpack_from(order + field, data, place) for place in places]
    except (struct.error, OverflowError):
        return 0  # cut off, or an address far outside: the reader will refuse it
    return max((size for tag, _, size in fields if tag in _STRIP_TAGS), default=0)


def _check(kind: str, what: str, found: Iterator[int] | range, most: int) -> None:
    """Counts no further than the limit."""
    if sum(1 for _ in zip(range(most + 1), found, strict=False)) > most:
        raise _too_large(f"The {kind} has more than the limit of {most} {what}.")


def _too_large(message: str) -> TooLargeError:
    return TooLargeError(message, param="image")
