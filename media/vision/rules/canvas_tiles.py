"""A picture in its own shape at a corner of the canvas of tiles that fits it best, and if there are several
tiles the whole of it behind them: the rule of Llama 4. Equal to what transformers' `Llama4ImageProcessor`
makes of one picture, whose values have the precision of bfloat16.

Each tile is an item, float32 [3, side, side], whose grid is (1, row, column), counted from one; that of a
whole picture is (1, 0, 0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Self

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..config import HALF
from ..images import FloatArray, PixelArray
from .still_rule import BILINEAR, StillRule, image_fields
from .torchvision_values import TorchvisionValues

_KINDS: Final = {"Llama4ImageProcessor": None}
_SIDE: Final = 336
_MOST: Final = 16
_LIMIT: Final = 256
Size = tuple[int, int]
"""Height and width."""


def open_rule(folder: Path) -> CanvasTiles:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    side = fields.square("size", _SIDE)
    most = fields.integer("max_patches", _MOST)
    if most > _LIMIT:
        raise fields.fault("max_patches", f"an integer of at most {_LIMIT}")
    fields.check_on("do_resize", "do_rescale", "do_normalize")
    return CanvasTiles(
        values=CoarseValues.read_bounded(fields, HALF, HALF, BILINEAR),
        side=side,
        most=most,
        fills=fields.flag("resize_to_max_canvas", default=False),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoarseValues(TorchvisionValues):
    """Each step of which rounds to bfloat16."""

    def of(self, picture: PixelArray) -> FloatArray:
        """See `Values.of`."""
        bytes_ = np.tile(np.arange(256, dtype=np.float32), (3, 1))
        mean, std = (_rounded(np.array(each, np.float32)[:, None]) for each in (self.mean, self.std))
        table = _rounded(_rounded(bytes_ * np.float32(self.factor)) - mean)
        table = _rounded(table / std)
        return np.stack([table[channel][picture[:, :, channel]] for channel in range(3)])


def _rounded(values: FloatArray) -> FloatArray:
    """To bfloat16, half to even."""
    bits = values.view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanvasTiles(StillRule):
    """See the module."""

    side: int
    most: int
    """Tiles, the whole picture not counted."""
    fills: bool
    """A picture is made as large as a canvas allows."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.side**2

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer tiles."""
        if max_pixels is None:
            return self
        return replace(self, most=max(1, min(self.most, max_pixels // self.max_item_pixels)))

    def low_detail(self) -> Self:
        """See `PixelRule`: one tile."""
        return replace(self, most=1)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        rows, columns = self._grid(height, width)
        number = rows * columns
        return 3 * self.max_item_pixels * (number + (number > 1))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        side = self.side
        height, width = picture.shape[:2]
        rows, columns = self._grid(height, width)
        canvas = np.zeros((rows * side, columns * side, 3), np.uint8)
        tall, wide = self._inside(height, width, (rows * side, columns * side))
        canvas[:tall, :wide] = self.values.resize(picture, tall, wide)
        if rows * columns == 1:
            return (self._item(canvas, 0, 0),)
        tiles = [
            self._item(canvas[row * side :, column * side :][:side, :side], row + 1, column + 1)
            for row in range(rows)
            for column in range(columns)
        ]
        return (*tiles, self._item(self.values.resize(picture, side, side), 0, 0))

    def _item(self, square: PixelArray, row: int, column: int) -> EncoderItem:
        return encoder_item(self.values.of(square), modality="image", grid=(1, row, column))

    def _grid(self, height: int, width: int) -> Size:
        """Rows and columns of the canvas that needs the least enlarging, or else the least shrinking, and of
        equal ones the smallest."""
        grids = _grids(self.most)
        scales = [_scale(grid, self.side, height, width) for grid in grids]
        enlarging = [scale for scale in scales if scale >= 1]
        chosen = (max if self.fills else min)(enlarging) if enlarging else max(scales)
        fitting = [grid for grid, scale in zip(grids, scales, strict=True) if scale == chosen]
        return min(fitting, key=math.prod)

    def _inside(self, height: int, width: int, canvas: Size) -> Size:
        """The size of a picture on its canvas, in its shape; enlarged to no more than a tile unless it
        fills. The reference has a canvas as float32, and a picture's own sides as float64."""
        scales: list[float | np.float32] = []
        sides: list[int] = []
        for own, most in ((height, canvas[0]), (width, canvas[1])):
            side = most if self.fills else min(max(own, self.side), most)
            is_own = not self.fills and max(own, self.side) <= most
            sides.append(side)
            scales.append(side / own if is_own else np.float32(side) / np.float32(own))
        if scales[1] < scales[0]:
            tall, wide = min(math.floor(height * scales[1]), sides[0]), sides[1]
        else:
            tall, wide = sides[0], min(math.floor(width * scales[0]), sides[1])
        return max(tall, 1), max(wide, 1)


def _scale(grid: Size, side: int, height: int, width: int) -> np.float32:
    tall, wide = (
        np.float32(number * side) / np.float32(own) for number, own in zip(grid, (height, width), strict=True)
    )
    return min(tall, wide)


@cache
def _grids(most: int) -> Sequence[Size]:
    """Rows and columns of up to so many tiles, those of one shape together."""
    by_shape: dict[float, list[Size]] = {}
    for number in range(most, 0, -1):
        for rows in range(1, number + 1):
            if number % rows == 0:
                by_shape.setdefault(rows * rows / number, []).append((rows, number // rows))
    return [grid for grids in by_shape.values() for grid in grids]
