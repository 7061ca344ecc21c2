"""A picture as the whole of it and, if several are needed to cover it, tiles: the rule of Ovis 2. Equal to
what transformers' `Ovis2ImageProcessorPil` makes of one picture.

All of it is one item, float32 [pictures, 3, side, side], whose grid is (1, rows, columns) of its tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Self

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..images import PixelArray
from .still_rule import StillRule, Values, image_fields

_SIDE: Final = 384
_MOST: Final = 12
_LIMIT: Final = 64
_ENOUGH: Final = 0.9
"""Of a picture's area, shown by tiles of the model's size."""
_KINDS: Final = {"Ovis2ImageProcessor": None}


def open_rule(folder: Path) -> CoveringTiles:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    side = fields.square("size", _SIDE)
    fields.check_on("use_covering_area_grid")
    most = fields.integer("max_patches", _MOST)
    if most > _LIMIT:
        raise fields.fault("max_patches", f"an integer of at most {_LIMIT}")
    crops = fields.flag("crop_to_patches", default=False)
    return CoveringTiles(values=Values.read(fields), side=side, most=most if crops else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveringTiles(StillRule):
    """See the module."""

    side: int
    most: int
    """Tiles, the whole picture not counted."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.side**2 * (self.most + (self.most > 1))

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer tiles."""
        if max_pixels is None:
            return self
        return replace(self, most=max(1, min(self.most, max_pixels // self.side**2)))

    def low_detail(self) -> Self:
        """See `PixelRule`: the whole picture alone."""
        return replace(self, most=1)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        rows, columns = grid_of(height, width, self.side, self.most)
        number = rows * columns
        return 3 * self.side**2 * (number + (number > 1))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        side = self.side
        rows, columns = grid_of(picture.shape[0], picture.shape[1], side, self.most)
        pictures = [self.values.resize(picture, side, side)]
        if rows * columns > 1:
            large = self.values.resize(picture, rows * side, columns * side)
            pictures += [
                large[row * side :, column * side :][:side, :side]
                for row in range(rows)
                for column in range(columns)
            ]
        features = np.stack([self.values.of(each) for each in pictures])
        return (encoder_item(features, modality="image", grid=(1, rows, columns)),)


@cache
def grid_of(height: int, width: int, side: int, most: int) -> tuple[int, int]:
    """Rows and columns: the fewest tiles that show enough of a picture's area, else those that show most.

    The reference measures with the numbers of rows and columns exchanged; so do we."""
    scored = [
        (across, down, _shown(height, width, across, down, side))
        for across in range(1, most + 1)
        for down in range(1, most // across + 1)
    ]
    scored.sort(key=lambda each: each[0] * each[1])
    enough = [each for each in scored if each[2] > _ENOUGH]
    if enough:
        across, down, _ = min(enough, key=lambda each: (each[0] * each[1], -each[2]))
    else:
        across, down, _ = min(scored, key=lambda each: (-each[2], each[0] * each[1]))
    return down, across


def _shown(height: int, width: int, lines: int, columns: int, side: int) -> float:
    """The part of a picture's area that is left when each cell of a grid is made no longer than a side."""
    tall, wide = height // lines, width // columns
    total = 0.0
    for line in range(lines):
        for column in range(columns):
            cell_height = height - line * tall if line == lines - 1 else tall
            cell_width = width - column * wide if column == columns - 1 else wide
            longer, shorter = max(cell_height, cell_width), min(cell_height, cell_width)
            total += side * (shorter / longer * side) if longer > side else longer * shorter
    return total / (height * width)
