"""A picture in nearly its own shape, its sides multiples of a patch: the rule of Pixtral and Mistral 3.
Equal to what transformers' `PixtralImageProcessorPil` makes of one picture: float32 [3, height, width]."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..images import PixelArray
from .still_rule import StillRule, Values, image_fields

_LONGEST: Final = 1024
_PATCH: Final = 16
_KINDS: Final = {"PixtralImageProcessor": None}


def open_rule(folder: Path) -> AnyShape:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    height, width = fields.sides("patch_size", {"height": _PATCH, "width": _PATCH})
    return AnyShape(
        values=Values.read(fields), longest=fields.longest("size", _LONGEST), patch=(height, width or height)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyShape(StillRule):
    """See the module."""

    longest: int
    patch: tuple[int, int]

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        height, width = self._resized(self.longest, self.longest)
        return height * width

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`."""
        if max_pixels is None:
            return self
        return replace(self, longest=max(max(self.patch), min(self.longest, int(max_pixels**0.5))))

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
        ratio = max(height, width) / self.longest
        if ratio > 1:
            height, width = (math.floor(side / ratio) for side in (height, width))
        tall, wide = self.patch
        return max(-(-height // tall), 1) * tall, max(-(-width // wide), 1) * wide
