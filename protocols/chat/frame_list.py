"""Pictures of a clip that its sender chose, as one file of ours: from a request to who opens them.

A client sends them as `data:video/jpeg;base64,…,…`, one JPEG after another, with `;fps=…` where the rate is
not the model's. Knows no pictures; they are opened by `media/vision/video.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

from ..errors import MediaError

MAX_FRAMES: Final = 4096
"""Counted before any is decoded from base64; a model takes fewer."""
_MAGIC: Final = b"\0sensorium frames\0"
_HEAD: Final = struct.Struct(">dI")
_SIZE: Final = struct.Struct(">I")


def pack_frames(frames: Sequence[bytes], fps: float = 0.0) -> bytes:
    """One file of several; `fps` 0: the model's rate."""
    sized = [part for frame in frames for part in (_SIZE.pack(len(frame)), frame)]
    return b"".join([_MAGIC, _HEAD.pack(fps, len(frames)), *sized])


def is_frame_list(data: bytes) -> bool:
    """Whether a file is one of these."""
    return data.startswith(_MAGIC)


def unpack_frames(data: bytes) -> tuple[list[bytes], float]:
    """The files, at least one, and their rate. Raises MediaError (`video`) for what is no such list."""
    place = len(_MAGIC) + _HEAD.size
    frames: list[bytes] = []
    try:
        fps, count = _HEAD.unpack_from(data, len(_MAGIC))
        while place < len(data) and len(frames) < MAX_FRAMES:
            (size,) = _SIZE.unpack_from(data, place)
            frames.append(data[place + _SIZE.size : place + _SIZE.size + size])
            place += _SIZE.size + size
    except struct.error:
        count, fps = 0, 0.0
    if not frames or len(frames) != count or place != len(data) or not 0 <= fps < math.inf:
        raise MediaError("The list of frames is damaged.", param="video")
    return frames, fps
