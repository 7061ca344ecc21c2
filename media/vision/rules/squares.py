"""A picture as one square, resized and perhaps cropped: the rule of LLaVA 1.5, Gemma 3, PaliGemma and others.

Equal to what the image processors of `transformers` that `_KINDS` lists make of it, where they need no
torchvision: float32 [3, height, width].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..config import CLIP_MEAN, CLIP_STD, HALF, Rgb
from ..images import PixelArray
from .still_rule import BICUBIC, BILINEAR, LANCZOS, StillRule, Values, image_fields

_SIDE: Final = 224


class _Defaults(NamedTuple):
    """What a class of image processors takes where a file does not say."""

    mean: Rgb
    std: Rgb
    resample: int = BICUBIC
    crops: bool = False
    """It resizes the shorter side, and cuts a square from the middle."""
    factor: float = 1 / 255


_ONE: Final = (1.0, 1.0, 1.0)
_CLIP: Final = _Defaults(CLIP_MEAN, CLIP_STD, crops=True)
_KINDS: Final = {
    "CLIPImageProcessor": _CLIP,
    "ChameleonImageProcessor": _Defaults(_ONE, _ONE, LANCZOS, crops=True, factor=0.0078),
    "GotOcr2ImageProcessor": _Defaults(CLIP_MEAN, CLIP_STD),
    "LlavaImageProcessor": _CLIP,
    "PPChart2TableImageProcessor": _Defaults(CLIP_MEAN, CLIP_STD),
    "VideoLlavaImageProcessor": _CLIP,
    "SiglipImageProcessor": _Defaults(HALF, HALF),
    "Gemma3ImageProcessor": _Defaults(HALF, HALF, BILINEAR),
}


def open_rule(folder: Path) -> Squares:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    defaults = fields.kind(_KINDS)
    if fields.get("do_pan_and_scan"):
        raise fields.fault("do_pan_and_scan", "false")
    if fields.get("crop_to_patches"):
        raise fields.fault("crop_to_patches", "false")
    square = {"height": _SIDE, "width": _SIDE}
    size = fields.sides("size", {"shortest_edge": _SIDE} if defaults.crops else square)
    crop = (
        fields.sides("crop_size", square) if fields.flag("do_center_crop", default=defaults.crops) else None
    )
    do_resize = fields.flag("do_resize", default=True)
    if crop is None and (size[1] is None or not do_resize):
        raise fields.fault("size", "a height and a width, or a do_center_crop that makes them equal")
    return Squares(
        values=Values.read(fields, defaults.mean, defaults.std, defaults.resample, defaults.factor),
        size=size if do_resize else None,
        crop=None if crop is None else (crop[0], crop[1] or crop[0]),
        is_padded=fields.flag("do_pad", default=False),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Squares(StillRule):
    """See the module."""

    size: tuple[int, int | None] | None
    """Height and width, or the shorter side alone; None: as it is."""
    crop: tuple[int, int] | None
    is_padded: bool
    """To a square, before all else."""

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of what a tower is given."""
        if self.crop is not None:
            return self.crop
        assert self.size is not None, "one of them is there"
        return self.size[0], self.size[1] or self.size[0]

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return math.prod(self.sides)

    def num_values(self, height: int, width: int) -> int:  # noqa: ARG002 (all have one size)
        """See `StillRule`."""
        return 3 * self.max_item_pixels

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        return (encoder_item(self.values.of(self._square(picture)), modality="image"),)

    def _square(self, picture: PixelArray) -> PixelArray:
        if self.is_padded:
            picture = _to_square(picture, [int(each * 255) for each in self.values.mean])
        if self.size is not None:
            picture = self.values.resize(picture, *_resized(picture.shape[0], picture.shape[1], *self.size))
        return picture if self.crop is None else _cropped(picture, *self.crop)


def _resized(height: int, width: int, new_height: int, new_width: int | None) -> tuple[int, int]:
    if new_width is not None:
        return new_height, new_width
    shorter = new_height
    if width <= height:
        return int(shorter * height / width), shorter
    return shorter, int(shorter * width / height)


def _to_square(picture: PixelArray, colour: list[int]) -> PixelArray:
    """In the middle of a square of one colour."""
    height, width = picture.shape[:2]
    side = max(height, width)
    square = np.empty((side, side, 3), np.uint8)
    square[:] = colour
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = picture
    return square


def _cropped(picture: PixelArray, height: int, width: int) -> PixelArray:
    """The middle of it, on black where it is smaller."""
    for axis, side in ((0, height), (1, width)):
        missing = side - picture.shape[axis]
        if missing > 0:
            padding = [(0, 0)] * 3
            padding[axis] = (-(-missing // 2), missing // 2)
            picture = np.pad(picture, padding)
        first = (picture.shape[axis] - side) // 2
        picture = picture.take(range(first, first + side), axis)
    return picture
