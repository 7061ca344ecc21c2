"""A picture as tiles of one size and, if there are several, the whole picture behind them: the rule of
InternVL, Aya Vision and others. Equal to what transformers' `GotOcr2ImageProcessorPil` makes of it, or as
many tiles as its `Cohere2VisionImageProcessor` cuts. Each tile is an item, float32 [3, height, width], and so
is each frame of a video, which is not cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Self

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..images import PixelArray
from .framed_rule import FramedRule, read_frames
from .still_rule import Values, image_fields

_SIDE: Final = 384
_MOST: Final = 12
LIMIT: Final = 256
_NUM_FRAMES: Final = 16
"""Of a video."""
_KINDS: Final = {"GotOcr2ImageProcessor": False, "Cohere2VisionImageProcessor": True}
"""Of each class whether it chooses tiles by size."""
_COHERE_SIDE: Final = 512


def open_rule(folder: Path) -> Tiles:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    by_size = fields.kind(_KINDS)
    side = _COHERE_SIDE if by_size else _SIDE
    height, width = fields.sides("size", {"height": side, "width": side})
    if width is None:
        raise fields.fault("size", "an object with height and width")
    least, most = fields.integer("min_patches", 1), fields.integer("max_patches", _MOST)
    if not least <= most <= LIMIT:
        raise fields.fault("max_patches", f"min_patches to {LIMIT}")
    values = Values.read(fields)
    videos = read_frames(folder, height, width, values, num_frames=_NUM_FRAMES)
    return Tiles(
        values=values, videos=videos, height=height, width=width, least=least, most=most, by_size=by_size
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles(FramedRule):
    """See the module."""

    height: int
    width: int
    least: int
    """Tiles, the whole picture not counted."""
    most: int
    by_size: bool = False
    """Of the grids into which a picture fits the one that needs the least enlarging, or else the least
    shrinking; not that of the nearest shape."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.height * self.width

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer tiles."""
        if max_pixels is None:
            return self
        most = max(1, min(self.most, max_pixels // self.max_item_pixels))
        return replace(self, least=min(self.least, most), most=most)

    def low_detail(self) -> Self:
        """See `PixelRule`: the whole picture alone."""
        return replace(self, least=1, most=1)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        columns, rows = self._grid(height, width)
        number = columns * rows
        return 3 * self.max_item_pixels * (number + (number > 1))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        columns, rows = self._grid(picture.shape[0], picture.shape[1])
        tiles = cut(self.values, picture, rows, columns, (self.height, self.width))
        if len(tiles) > 1:
            tiles.append(self.values.resize(picture, self.height, self.width))
        return tuple(encoder_item(self.values.of(each), modality="image") for each in tiles)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Columns and rows."""
        if self.by_size:
            return self._grid_by_size(height, width)
        return nearest_grid(height, width, self.max_item_pixels, grids(self.least, self.most))

    def _grid_by_size(self, height: int, width: int) -> tuple[int, int]:
        def scale(grid: tuple[int, int]) -> float:
            columns, rows = grid
            return min(columns * self.height / width, rows * self.height / height)

        found = grids(1, self.most)
        enlarging = [grid for grid in found if scale(grid) >= 1]
        return min(enlarging, key=scale) if enlarging else max(found, key=scale)


def cut(
    values: Values, picture: PixelArray, rows: int, columns: int, tile: tuple[int, int]
) -> list[PixelArray]:
    """A picture resized to a grid of tiles of this height and width, row by row."""
    height, width = tile
    large = values.resize(picture, height * rows, width * columns)
    return [
        large[row * height : (row + 1) * height, column * width : (column + 1) * width]
        for row in range(rows)
        for column in range(columns)
    ]


def nearest_grid(
    height: int, width: int, tile_pixels: int, found: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """See `Tiles._grid`."""
    best, least = (1, 1), float("inf")
    for columns, rows in found:
        difference = abs(width / height - columns / rows)
        area = tile_pixels * columns * rows
        if difference < least or (difference == least and height * width > 0.5 * area):
            best, least = (columns, rows), difference
    return best


@cache
def grids(least: int, most: int, most_side: int | None = None) -> tuple[tuple[int, int], ...]:
    """Columns and rows of `least` to `most` tiles, the fewest first; of at most so many on a side."""
    sides = range(1, min(most, most_side or most) + 1)
    found = [(columns, rows) for columns in sides for rows in sides if least <= columns * rows <= most]
    return tuple(sorted(found, key=lambda each: each[0] * each[1]))
