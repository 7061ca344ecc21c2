"""One frame of live video → upright, resized pixels, and a thumbnail by which frames are told apart.

All frames of a session get the size that those of a clip as long as the session remembers would have, so that
each can be encoded once, however many follow. Meant for a worker process, as `media/vision/images.py`, which
opens the file; `media/vision/video.py` knows the sizes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from PIL import Image

from ...protocols.errors import MediaError
from .config import VideoConfig
from .image_cost import PNG
from .images import ImageLimits, PixelArray, read_image, resize
from .jpeg import JPEG, SCAN, jpeg_segments
from .video import target_size

_SIDE: Final = 32
"""Of the thumbnail, in pixels."""
_STARTS: Final = (JPEG, PNG)
_MAX_SEGMENTS: Final = 1_000
"""Looked through in a JPEG for its first scan."""


def is_picture(data: bytes) -> bool:
    """Whether bytes are a file as a frame is one; sound is not, but by a chance of 1 in 2**40."""
    if data.startswith(JPEG):
        *_, last = 0, *itertools.islice(jpeg_segments(data), _MAX_SEGMENTS)
        return data.startswith(SCAN, last)  # its end marker may be missing
    return data.startswith(PNG) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP")


@dataclass(frozen=True, slots=True, eq=False)
class PreparedFrame:
    """`pixels` uint8 [height, width, 3] as they will be encoded; `width` and `height` are the file's."""

    width: int
    height: int
    pixels: PixelArray
    thumbnail: bytes
    """32 x 32 shades of grey."""


def open_frame(
    data: bytes, config: VideoConfig, *, num_frames: int, limits: ImageLimits | None = None
) -> PreparedFrame:
    """Open a JPEG, PNG or WebP file as one of `num_frames`. Raises MediaError or TooLargeError (`image`)."""
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    if not is_webp and not data.startswith(_STARTS):
        raise MediaError("A frame is a JPEG, PNG or WebP file.", param="image")
    pixels = read_image(data, limits, config.pixels.background)
    height, width = pixels.shape[:2]
    size = target_size(num_frames, height, width, config)
    grey = Image.fromarray(pixels).convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return PreparedFrame(width, height, resize(pixels, *size, config.pixels), grey.tobytes())
