"""A picture in nearly its own shape, its area between two numbers and its sides multiples of one: the rule of
Emu 3. Equal to what transformers' `Emu3ImageProcessor` makes of one picture: float32 [3, height, width]."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from .....protocols.engine.messages import EncoderItem
from ....hashing import encoder_item
from ...images import PixelArray, smart_resize
from ..still_rule import StillRule, Values, image_fields

_LEAST: Final = 512 * 512
_MOST: Final = 1024 * 1024
_FACTOR: Final = 8
_KINDS: Final = {"Emu3ImageProcessor": None}


def open_rule(folder: Path) -> BoundedArea:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    fields.check_on("do_resize")
    least, most = fields.integer("min_pixels", _LEAST), fields.integer("max_pixels", _MOST)
    if most < least:
        raise fields.fault("max_pixels", "an integer of at least min_pixels")
    factor = fields.integer("spatial_factor", _FACTOR)
    return BoundedArea(values=Values.read(fields), least=least, most=most, factor=factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedArea(StillRule):
    """See the module."""

    least: int
    """Pixels."""
    most: int
    factor: int
    ceiling: int | None = None
    """An operator's bound, which no picture is rounded up beyond."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.most

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`."""
        if max_pixels is None:
            return self
        most = max(self.factor**2, min(self.most, max_pixels))
        return replace(self, most=most, least=min(self.least, most), ceiling=most)

    def low_detail(self) -> Self:
        """See `PixelRule`."""
        return self.bounded(512 * 512)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        return 3 * math.prod(self._resized(height, width))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        resized = self.values.resize(picture, *self._resized(picture.shape[0], picture.shape[1]))
        return (encoder_item(self.values.of(resized), modality="image"),)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        return smart_resize(
            height,
            width,
            factor=self.factor,
            min_pixels=self.least,
            max_pixels=self.most,
            ceiling=self.ceiling,
        )
