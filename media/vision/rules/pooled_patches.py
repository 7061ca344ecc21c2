"""A picture in its own shape on a budget of rows, as patches in order of their lines: the rule of Gemma 4.
Equal to what transformers' `Gemma4ImageProcessorPil` makes of one picture, without the padding behind it:
float32 [patches, values], a patch's values ordered (y, x, channel)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..images import PixelArray
from .still_rule import StillRule, Values, image_fields

_PATCH: Final = 16
_POOLED: Final = 3
_MAX_ROWS: Final = 280
_LOW_DETAIL_ROWS: Final = 70
"""The least that the models were trained with."""
_KINDS: Final = {"Gemma4ImageProcessor": None}


def open_rule(folder: Path) -> PooledPatches:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    if not fields.flag("do_resize", default=True):
        raise fields.fault("do_resize", "true")
    values = Values.read(fields, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return PooledPatches(
        values=replace(values, do_normalize=fields.flag("do_normalize", default=False)),
        patch_size=fields.integer("patch_size", _PATCH),
        pooled=fields.integer("pooling_kernel_size", _POOLED),
        max_rows=fields.integer("max_soft_tokens", _MAX_ROWS),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledPatches(StillRule):
    """See the module."""

    patch_size: int
    pooled: int
    """Patches on a side of the square that becomes a row."""
    max_rows: int

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.max_rows * self._side**2

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`."""
        if max_pixels is None:
            return self
        return replace(self, max_rows=max(min(self.max_rows, max_pixels // self._side**2), 1))

    def low_detail(self) -> Self:
        """See `PixelRule`."""
        return replace(self, max_rows=min(self.max_rows, _LOW_DETAIL_ROWS))

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        return 3 * math.prod(self._resized(height, width))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        size = self.patch_size
        pixels = self.values.of(self.values.resize(picture, *self._resized(*picture.shape[:2])))
        tall, wide = pixels.shape[1] // size, pixels.shape[2] // size
        lines = pixels.reshape(3, tall, size, wide, size).transpose(1, 3, 2, 4, 0)
        patches = np.ascontiguousarray(lines).reshape(tall * wide, 3 * size**2)
        return (encoder_item(patches, modality="image", grid=(1, tall, wide)),)

    @property
    def _side(self) -> int:
        """Pixels on a side of a row's square."""
        return self.pooled * self.patch_size

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """The largest in the picture's shape of at most `max_rows` squares; at least one on each side."""
        factor = math.sqrt(self.max_rows * self._side**2 / (height * width))
        tall, wide = (math.floor(factor * each / self._side) for each in (height, width))
        if tall == 0:
            tall, wide = 1, min(width // height, self.max_rows)
        elif wide == 0:
            tall, wide = min(height // width, self.max_rows), 1
        return tall * self._side, wide * self._side
