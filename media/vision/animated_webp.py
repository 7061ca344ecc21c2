"""The pictures of an animated WebP file, which libav does not read: times by headers, pixels by Pillow."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from PIL import Image

from ...protocols.errors import MediaError, TooLargeError
from .config import WHITE
from .images import PixelArray, rgb
from .video_container import VideoLimits, check_length, check_picture, fault, too_large

_HEAD: Final = 12
_CHUNK_HEAD: Final = 8
_ANIMATED: Final = 2
"""The bit of `VP8X` that says there is more than one picture."""
_LAST_S: Final = 0.1
"""How long a picture is shown that says no time, as browsers have it."""


def is_animated_webp(data: bytes) -> bool:
    """Whether bytes are a WebP file of several pictures."""
    head = data[: _HEAD + _CHUNK_HEAD + 1]
    return (
        len(head) > _HEAD + _CHUNK_HEAD
        and (head[:4], head[8:12], head[12:16]) == (b"RIFF", b"WEBP", b"VP8X")
        and bool(head[20] & _ANIMATED)
    )


def webp_pictures(data: bytes, limits: VideoLimits) -> tuple[tuple[int, int], list[float], float]:
    """(height, width), the time of each picture in seconds, and the length of the whole.

    Raises MediaError or TooLargeError (`video`).
    """
    if len(data) > limits.max_bytes:
        raise too_large(f"The video has {len(data)} bytes; the limit is {limits.max_bytes} bytes.")
    if len(data) < _HEAD + _CHUNK_HEAD + 10:
        raise fault("The WebP file is cut off in its header.")
    width, height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
    check_picture(width, height, limits)
    times: list[float] = []
    now = 0.0
    for lasts_s in _durations(data):
        times.append(now)
        now += lasts_s or _LAST_S
        if len(times) > limits.max_frames:
            raise too_large(f"The video has more than the limit of {limits.max_frames} frames.")
    if not times:
        raise fault("The video holds no pictures.")
    check_length(now, limits)
    return (height, width), times, now


def _durations(data: bytes) -> Iterator[float]:
    """Seconds that each picture is shown; one that is cut off is none."""
    at = _HEAD
    while at + _CHUNK_HEAD <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        at += _CHUNK_HEAD
        if at + size > len(data):
            return
        if name == b"ANMF" and size >= 16:
            yield int.from_bytes(data[at + 12 : at + 15], "little") / 1000
        at += size + size % 2


def read_webp(
    data: bytes, wanted: Sequence[int], keep: Callable[[PixelArray], PixelArray]
) -> list[tuple[int, PixelArray] | None]:
    """What `keep` makes of each of `wanted` (places, rising), uint8 [height, width, 3], on white where it is
    transparent; None where the file is damaged. Raises MediaError (`video`)."""
    found: list[tuple[int, PixelArray] | None] = [None] * len(wanted)
    try:
        with Image.open(io.BytesIO(data), formats=["WEBP"]) as image:
            for index, place in enumerate(wanted):
                image.seek(place)
                found[index] = place, keep(np.array(rgb(image, WHITE)))
    except (MediaError, TooLargeError, MemoryError):
        raise
    except Exception as error:  # Pillow's readers raise whatever their parsing trips over
        if not any(found):
            raise fault("The video could not be decoded.") from error
    return found
