"""A picture as patches in nearly its own shape, or if it is too large as tiles and the whole of it behind
them: the rule of LFM2-VL. Equal to what transformers' `Lfm2VlImageProcessor` makes of one picture, without
the padding behind it.

Each is an item, float32 [patches, values], a patch's values ordered (y, x, channel), whose grid is (row of
tiles, lines, columns of patches); rows are counted from one, that of a whole picture is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Self

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..config import HALF
from ..images import PixelArray
from .still_rule import BILINEAR, StillRule, image_fields
from .tiles import nearest_grid
from .torchvision_values import TorchvisionValues

_KINDS: Final = {"Lfm2VlImageProcessor": None}
_MOST_TILES: Final = 256


def open_rule(folder: Path) -> SplitPatches:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    patch, merge = fields.integer("encoder_patch_size", 16), fields.integer("downsample_factor", 2)
    least, most = fields.integer("min_image_tokens", 64), fields.integer("max_image_tokens", 256)
    if least > most:
        raise fields.fault("max_image_tokens", "at least min_image_tokens")
    tile = fields.integer("tile_size", 512)
    if tile % (patch * merge):
        raise fields.fault(
            "tile_size", f"a multiple of encoder_patch_size · downsample_factor, {patch * merge}"
        )
    tiles = fields.integer("min_tiles", 2), fields.integer("max_tiles", 10)
    if not tiles[0] <= tiles[1] <= _MOST_TILES:
        raise fields.fault("max_tiles", f"min_tiles to {_MOST_TILES}")
    if not fields.flag("do_image_splitting", default=True):
        tiles = 1, 1
    return SplitPatches(
        values=TorchvisionValues.read_bounded(fields, HALF, HALF, BILINEAR),
        patch=patch,
        square=patch * merge,
        rows=(least, most),
        tile=tile,
        tiles=tiles,
        tolerance=fields.number("max_pixels_tolerance", 2.0),
        adds_whole=fields.flag("use_thumbnail", default=True),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPatches(StillRule):
    """See the module."""

    patch: int
    """Pixels on its side."""
    square: int
    """Pixels on a side of what becomes one row."""
    rows: tuple[int, int]
    """Least and most of a whole picture."""
    tile: int
    tiles: tuple[int, int]
    """Least and most of a picture that is cut; (1, 1): none is."""
    tolerance: float
    """By how many times the most rows a picture may be larger before it is cut."""
    adds_whole: bool
    """Behind tiles."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return max(self.rows[1] * self.square**2, self.tile**2 if self._cuts else 0)

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer rows, fewer tiles."""
        if max_pixels is None:
            return self
        rows = max(1, min(self.rows[1], max_pixels // self.square**2))
        tiles = min(self.tiles[1], max_pixels // self.tile**2)
        return replace(
            self,
            rows=(min(self.rows[0], rows), rows),
            tiles=(self.tiles[0], tiles) if tiles >= self.tiles[0] else (1, 1),
        )

    def low_detail(self) -> Self:
        """See `PixelRule`: the whole picture alone."""
        return replace(self, tiles=(1, 1))

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        whole = math.prod(self._resized(height, width))
        if not self._is_cut(height, width):
            return 3 * whole
        columns, lines = self._grid(height, width)
        number = columns * lines
        return 3 * (number * self.tile**2 + (whole if self._adds_whole(number) else 0))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        height, width = picture.shape[:2]
        items: list[EncoderItem] = []
        if self._is_cut(height, width):
            columns, lines = self._grid(height, width)
            large = self.values.resize(picture, lines * self.tile, columns * self.tile)
            items = [
                self._item(
                    large[line * self.tile :, column * self.tile :][: self.tile, : self.tile], line + 1
                )
                for line in range(lines)
                for column in range(columns)
            ]
        if not items or self._adds_whole(len(items)):
            items.append(self._item(self.values.resize(picture, *self._resized(height, width)), 0))
        return tuple(items)

    def _item(self, picture: PixelArray, row: int) -> EncoderItem:
        size = self.patch
        lines, columns = picture.shape[0] // size, picture.shape[1] // size
        pixels = self.values.of(picture).reshape(3, lines, size, columns, size)
        patches = np.ascontiguousarray(pixels.transpose(1, 3, 2, 4, 0)).reshape(lines * columns, -1)
        return encoder_item(patches, modality="image", grid=(row, lines, columns))

    @property
    def _cuts(self) -> bool:
        return self.tiles[1] > 1

    def _is_cut(self, height: int, width: int) -> bool:
        shown = math.prod(max(self.patch, self._rounded(each)) for each in (height, width))
        return self._cuts and shown > self.rows[1] * self.square**2 * self.tolerance

    def _adds_whole(self, num_tiles: int) -> bool:
        return self.adds_whole and num_tiles > 1

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Columns and lines of tiles."""
        return nearest_grid(height, width, self.tile**2, _grids(*self.tiles))

    def _rounded(self, side: int) -> int:
        return round(side / self.square) * self.square

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of a whole picture, multiples of a row's square."""
        square = self.square
        tall, wide = (max(square, self._rounded(each)) for each in (height, width))
        least, most = (rows * square**2 for rows in self.rows)
        if tall * wide > most:
            beta = math.sqrt(height * width / most)
            # A very long picture has one line of no more than the most rows.
            tall, wide = (
                min(max(math.floor(each / beta / square), 1), self.rows[1]) * square
                for each in (height, width)
            )
        elif tall * wide < least:
            beta = math.sqrt(least / (height * width))
            tall, wide = (math.ceil(each * beta / square) * square for each in (height, width))
        return tall, wide


@cache
def _grids(least: int, most: int) -> tuple[tuple[int, int], ...]:
    """Columns and rows; those of one number of tiles in the reference's order, which is that of a set."""
    sides = range(1, most + 1)
    found = {
        (columns, rows)
        for number in range(least, most + 1)
        for columns in sides[:number]
        for rows in sides[:number]
        if least <= columns * rows <= most
    }
    return tuple(sorted(found, key=lambda each: each[0] * each[1]))
