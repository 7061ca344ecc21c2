"""A picture in its own shape in the corner of a black square: the rule of Aria, which may cut it into several
before. Equal to what transformers' `AriaImageProcessorPil` makes of it.

Each square is an item, float32 [3, side, side], whose grid is (1, height, width) of what it shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from .....protocols.engine.messages import EncoderItem
from ....hashing import encoder_item
from ...config import HALF, ProcessorFields
from ...images import PixelArray
from ..anyres import Size, best_size, inside
from ..still_rule import StillRule, Values, image_fields

_SIDES: Final = (490, 980)
"""There are numbers of rows for no others."""
_LEAST: Final = 336
_MAX_SIZES: Final = 1000
_TILES: Final = (
    *((1, number) for number in range(2, 9)),
    *((2, 4), (2, 3), (2, 2), (2, 1), (3, 1), (3, 2), (4, 1), (4, 2)),
    *((number, 1) for number in range(5, 9)),
)
"""Of 490 pixels: what a picture is cut into where a file does not say."""
_KINDS: Final = {"AriaImageProcessor": None}


def open_rule(folder: Path) -> FramedCrops:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    side = fields.integer("max_image_size", max(_SIDES))
    if side not in _SIDES:
        raise fields.fault("max_image_size", " or ".join(map(str, _SIDES)))
    least = fields.integer("min_image_size", _LEAST)
    if least > side:
        raise fields.fault("min_image_size", f"an integer of at most {side}")
    cuts = fields.flag("split_image", default=False)
    return FramedCrops(
        values=Values.read(fields, HALF, HALF), side=side, least=least, sizes=_sizes(fields) if cuts else ()
    )


def _sizes(fields: ProcessorFields) -> tuple[Size, ...]:
    sizes = fields.get("split_resolutions")
    if sizes is None:
        return tuple((rows * _SIDES[0], columns * _SIDES[0]) for rows, columns in _TILES)
    if not isinstance(sizes, list) or not 0 < len(sizes) <= _MAX_SIZES or not all(map(_is_size, sizes)):
        raise fields.fault("split_resolutions", f"pairs of positive integers, {_MAX_SIZES} at most")
    return tuple((each[0], each[1]) for each in sizes)


def _is_size(value: object) -> bool:
    return isinstance(value, list) and [type(each) is int and each > 0 for each in value] == [True, True]


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedCrops(StillRule):
    """See the module."""

    side: int
    least: int
    """Pixels of the shorter side of what a square shows."""
    sizes: tuple[Size, ...]
    """Height and width of larger pictures, one of which is cut into squares; none: it is not cut."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.side**2

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer squares."""
        if max_pixels is None:
            return self
        return replace(self, sizes=tuple(each for each in self.sizes if math.prod(each) <= max_pixels))

    def low_detail(self) -> Self:
        """See `PixelRule`: the whole picture alone."""
        return replace(self, sizes=())

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        if not self.sizes:
            return 3 * self.max_item_pixels
        tall, wide = best_size((height, width), self.sizes)
        return 3 * self.max_item_pixels * -(-tall // self.side) * -(-wide // self.side)

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        if not self.sizes:
            return (self._item(picture),)
        size = (picture.shape[0], picture.shape[1])
        height, width = best_size(size, self.sizes)
        tall, wide = inside(size, (height, width))
        large = np.zeros((height, width, 3), np.uint8)
        top, left = (height - tall) // 2, (width - wide) // 2
        large[top : top + tall, left : left + wide] = self.values.resize(picture, tall, wide)
        return tuple(
            self._item(large[y : y + self.side, x : x + self.side])
            for y in range(0, height, self.side)
            for x in range(0, width, self.side)
        )

    def _item(self, picture: PixelArray) -> EncoderItem:
        height, width = picture.shape[:2]
        scale = self.side / max(height, width)
        if width >= height:
            height, width = max(int(height * scale), self.least), self.side
        else:
            height, width = self.side, max(int(width * scale), self.least)
        square = np.zeros((self.side, self.side, 3), np.uint8)
        square[:height, :width] = self.values.resize(picture, height, width)
        return encoder_item(self.values.of(square), modality="image", grid=(1, height, width))
