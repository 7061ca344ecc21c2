"""A picture as tiles, if it is larger than one, and the whole of it in a square: the rule of DeepSeek-OCR 2.
Equal to what transformers' `DeepseekOcr2ImageProcessorPil` makes of it.

Each is an item, float32 [3, side, side]. Its grid is (1, row, column), counted from one; that of the whole
picture is (1, 0, 0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from .....protocols.engine.messages import EncoderItem
from ....hashing import encoder_item
from ...config import HALF
from ...images import PixelArray
from ..framed_square import framed
from ..still_rule import StillRule, Values, image_fields
from ..tiles import LIMIT, cut, grids, nearest_grid

_SIDE: Final = 1024
_TILE: Final = 768
_LEAST: Final = 2
_MOST: Final = 6
_GREY: Final = [127] * 3
_KINDS: Final = {"DeepseekOcr2ImageProcessor": None}


def open_rule(folder: Path) -> Views:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    side = fields.square("size", _SIDE)
    tile = fields.integer("tile_size", _TILE)
    least, most = fields.integer("min_patches", _LEAST), fields.integer("max_patches", _MOST)
    if not least <= most <= LIMIT:
        raise fields.fault("max_patches", f"min_patches to {LIMIT}")
    colour = fields.get("background_color", _GREY)
    if (
        not isinstance(colour, list)
        or [type(each) is int and 0 <= each < 256 for each in colour] != [True] * 3
    ):
        raise fields.fault("background_color", "three integers of 0 to 255")
    cuts = fields.flag("crop_to_patches", default=True)
    return Views(
        values=Values.read(fields, HALF, HALF),
        side=side if cuts else tile,
        tile=tile,
        least=least,
        most=most if cuts else 0,
        colour=(colour[0], colour[1], colour[2]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Views(StillRule):
    """See the module."""

    side: int
    """Of the square with the whole picture."""
    tile: int
    least: int
    """Tiles of a picture that is cut."""
    most: int
    """0: none is."""
    colour: tuple[int, int, int]
    """Around the whole picture."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return max(self.side, self.tile) ** 2

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer tiles, or none."""
        if max_pixels is None:
            return self
        most = min(self.most, max_pixels // self.tile**2)
        return replace(self, most=most if most >= self.least else 0)

    def low_detail(self) -> Self:
        """See `PixelRule`: the whole picture alone."""
        return replace(self, most=0)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        columns, rows = self._grid(height, width)
        return 3 * (self.side**2 + columns * rows * self.tile**2)

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        columns, rows = self._grid(picture.shape[0], picture.shape[1])
        tiles = cut(self.values, picture, rows, columns, (self.tile, self.tile)) if rows else []
        whole = framed(self.values, picture, self.side, 1, self.colour)
        return (
            *(
                self._item(each, index // columns + 1, index % columns + 1)
                for index, each in enumerate(tiles)
            ),
            self._item(whole, 0, 0),
        )

    def _item(self, square: PixelArray, row: int, column: int) -> EncoderItem:
        return encoder_item(self.values.of(square), modality="image", grid=(1, row, column))

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Columns and rows of tiles."""
        if max(height, width) <= self.tile or not self.most:
            return 0, 0
        return nearest_grid(height, width, self.tile**2, grids(self.least, self.most))
