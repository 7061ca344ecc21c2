"""The structure of a JPEG file: its segments, its scans, and an end marker that may be missing.

Some cameras, cutters and proxies lose the last two bytes. All pixels are there then, and viewers show them;
libjpeg's incremental reader waits for more. Pixels are decoded by `media/vision/images.py`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Final

from PIL import Image

JPEG: Final = b"\xff\xd8\xff"
"""The first bytes of every file."""
SCAN: Final = b"\xff\xda"
"""In front of a scan; compressed data hold no such bytes."""
END: Final = b"\xff\xd9"
_STANDALONE: Final = frozenset((0x01, *range(0xD0, 0xD9)))
"""Markers without a length."""
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers that say which components there are."""
_PROGRESSIVE: Final = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
_FILLERS: Final = tuple(
    hashlib.sha512(bytes([index])).digest().replace(b"\xff", b"") * 4 for index in range(6)
)
"""What may stand in place of missing data, without a marker: each becomes other pixels. One alone may begin
as what is missing does."""


def jpeg_segments(data: bytes) -> Iterator[int]:
    """Where each segment of a JPEG in front of its first scan begins, and that scan. Fill bytes count as
    segments: a reader looks at each. Ends early where no marker is."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        yield at
        kind = data[at + 1]
        if kind == SCAN[1]:
            return
        if kind == 0xFF:
            at += 1
        elif kind in _STANDALONE:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4])


def lacks_end(data: bytes) -> bool:
    """Whether it is a JPEG without its end marker, which thumbnails inside it have, too."""
    return data.startswith(JPEG) and data.rfind(END) < data.rfind(SCAN)


def with_end(data: bytes) -> bytes:
    """A file that `lacks_end` with its end, if all pixels are there; else as it came, which no reader takes.

    What is missing shows when other bytes stand in its place: then other pixels come out.
    """
    body = data.rstrip(b"\xff")
    if not _is_refined(data):
        return data
    plain = _decoded(body + END)
    is_whole = all(_decoded(body + filler + END) == plain for filler in _FILLERS)
    return body + END if is_whole else data


def _decoded(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
        return image.tobytes()


def _is_refined(data: bytes) -> bool:
    """Whether all bits of all coefficients have a scan."""
    segments = list(jpeg_segments(data))
    frame = next((at for at in segments if data[at + 1] in _FRAMES), None)
    if frame is None or data[frame + 1] not in _PROGRESSIVE:
        return frame is not None
    components = {data[frame + 10 + 3 * index] for index in range(data[frame + 9])}
    left = {(component, place) for component in components for place in range(64)}
    at = segments[-1]
    while at >= 0 and at + 10 <= len(data):
        count = data[at + 4]
        first, last, bits = data[at + 5 + 2 * count : at + 8 + 2 * count]
        if not bits & 15:
            named = {data[at + 5 + 2 * index] for index in range(count)}
            left -= {(component, place) for component in named for place in range(first, last + 1)}
        at = data.find(SCAN, at + 2)
    return not left
