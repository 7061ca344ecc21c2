"""A picture in nearly its own shape, its sides between two numbers: the rule of Idefics 2. Equal to what
transformers' `Idefics2ImageProcessorPil` makes of one picture: float32 [3, height, width]."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..config import HALF
from ..images import PixelArray
from .still_rule import BILINEAR, StillRule, Values, image_fields

_SIZE: Final = {"shortest_edge": 378, "longest_edge": 980}
_KINDS: Final = {"Idefics2ImageProcessor": None}


def open_rule(folder: Path) -> BoundedSides:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    if fields.flag("do_image_splitting", default=False):
        raise fields.fault("do_image_splitting", "false")
    size = fields.get("size")
    size = _SIZE if size is None else size
    sides = (size.get("shortest_edge"), size.get("longest_edge")) if isinstance(size, dict) else (0, 0)
    least, most = sides
    if type(least) is not int or type(most) is not int or not 0 < least <= most:
        raise fields.fault("size", "an object with shortest_edge and longest_edge, positive, in this order")
    return BoundedSides(values=Values.read(fields, HALF, HALF, BILINEAR), least=least, most=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedSides(StillRule):
    """See the module."""

    least: int
    """Pixels of each side."""
    most: int

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.most**2

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`."""
        if max_pixels is None:
            return self
        return replace(self, most=max(self.least, min(self.most, int(max_pixels**0.5))))

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        return 3 * math.prod(self._resized(height, width))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        resized = self.values.resize(picture, *self._resized(picture.shape[0], picture.shape[1]))
        return (encoder_item(self.values.of(resized), modality="image"),)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        ratio = width / height
        if width >= height and width > self.most:
            height, width = int(self.most / ratio), self.most
        elif height > width and height > self.most:
            height, width = self.most, int(self.most * ratio)
        return max(height, self.least), max(width, self.least)
