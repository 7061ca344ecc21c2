"""A picture as a small whole and the tiles of a larger one whose shape fits best: the rule of LLaVA-NeXT and
LLaVA-OneVision. Equal to what transformers' processors of those make of one picture.

All of it is one item, float32 [1 + tiles, 3, side, side], whose grid is (1, height, width) of the picture
itself: how many rows it becomes depends on that. Two frames of a video are one, [2, 3, side, side], without a
grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..config import CLIP_MEAN, CLIP_STD
from ..images import PixelArray
from .framed_rule import FramedRule, read_frames
from .still_rule import Values, image_fields

_KINDS: Final = {"LlavaNextImageProcessor": 224, "LlavaOnevisionImageProcessor": 384}
_NUM_FRAMES: Final = 32
"""Of a video, as many as LLaVA-OneVision was trained with."""
_MAX_SIZES: Final = 1000
Size = tuple[int, int]
"""Height and width."""


def open_rule(folder: Path) -> AnyResolution:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    side = fields.kind(_KINDS)
    height, width = fields.sides("size", {"height": side, "width": side})
    crop = fields.get("crop_size")
    if width not in (None, height) or crop not in (None, height, {"height": height, "width": height}):
        raise fields.fault("size", "equal sides, as crop_size has them")
    sizes = fields.get("image_grid_pinpoints")
    if (
        not isinstance(sizes, list)
        or not 0 < len(sizes) <= _MAX_SIZES
        or not all(_is_grid(each, height) for each in sizes)
    ):
        raise fields.fault("image_grid_pinpoints", f"pairs of multiples of {height}, {_MAX_SIZES} at most")
    values = Values.read(fields, CLIP_MEAN, CLIP_STD)
    return AnyResolution(
        values=values,
        videos=read_frames(folder, height, height, values, num_frames=_NUM_FRAMES, together=2),
        side=height,
        sizes=tuple((each[0], each[1]) for each in sizes),
    )


def _is_grid(value: object, side: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(each) is int and each > 0 and each % side == 0 for each in value)
    )


def best_size(picture: Size, sizes: tuple[Size, ...]) -> Size:
    """That of `sizes` which shows most of the picture's pixels, and of those the smallest."""
    height, width = picture

    def score(size: Size) -> tuple[int, int]:
        scale = min(size[1] / width, size[0] / height)
        shown = min(int(width * scale) * int(height * scale), width * height)
        return shown, shown - size[0] * size[1]

    return max(sizes, key=score)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyResolution(FramedRule):
    """See the module."""

    side: int
    sizes: tuple[Size, ...]

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.side**2 + max(height * width for height, width in self.sizes)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        large = best_size((height, width), self.sizes)
        return 3 * (self.side**2 + large[0] * large[1])

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        size = (picture.shape[0], picture.shape[1])
        side, (height, width) = self.side, best_size(size, self.sizes)
        tall, wide = inside(size, (height, width))
        large = np.zeros((height, width, 3), np.uint8)
        top, left = (height - tall) // 2, (width - wide) // 2
        large[top : top + tall, left : left + wide] = self.values.resize(picture, tall, wide)
        tiles = [
            large[y : y + side, x : x + side] for y in range(0, height, side) for x in range(0, width, side)
        ]
        small = self.values.resize(picture, side, side)
        features = np.stack([self.values.of(each) for each in (small, *tiles)])
        return (encoder_item(features, modality="image", grid=(1, *size)),)


def inside(picture: Size, frame: Size) -> Size:
    """The size of a picture that fills one side of a frame."""
    scale_height, scale_width = frame[0] / picture[0], frame[1] / picture[1]
    if scale_width < scale_height:
        return min(math.ceil(picture[0] * scale_width), frame[0]), frame[1]
    return frame[0], min(math.ceil(picture[1] * scale_height), frame[1])
