"""A page as numbered tiles and, if there are several, the whole of it behind them: the rule of Granite
Docling. Equal to what transformers' `GraniteDoclingImageProcessorPil` makes of it.

Each tile is an item, float32 [3, height, width], whose grid is (1, row, column), counted from one; that of
the whole page is (1, 0, 0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from .....protocols.engine.messages import EncoderItem
from ....hashing import encoder_item
from ...config import ProcessorFields
from ...images import PixelArray
from ..still_rule import StillRule, Values, image_fields
from ..tiles import LIMIT, cut, grids, nearest_grid

_SIDE: Final = 512
_MOST: Final = 32
_MOST_SIDE: Final = 16
"""Tiles in a row or column: there are tokens for no more."""
_KINDS: Final = {"GraniteDoclingImageProcessor": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Which wide pages are cut into more tiles than others, as newspapers are."""

    most: int
    """Tiles of such a page."""
    below_scale: float
    """The tiles of other pages would make them narrower than by this; 0: any."""
    min_aspect: float
    """They are wider than so many heights; 0: any."""
    max_aspect: float
    """And no wider than so many; 0: any."""


def open_rule(folder: Path) -> PageTiles:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    height, width = fields.sides("size", {"height": _SIDE, "width": _SIDE})
    if width is None:
        raise fields.fault("size", "an object with height and width")
    if not fields.flag("crop_to_patches", default=True):
        return PageTiles(values=Values.read(fields), height=height, width=width, least=1, most=1)
    least, most = fields.integer("min_patches", 1), fields.integer("max_patches", _MOST)
    if not least <= most <= LIMIT:
        raise fields.fault("max_patches", f"min_patches to {LIMIT}")
    return PageTiles(
        values=Values.read(fields),
        height=height,
        width=width,
        least=least,
        most=most,
        spreads=_read_spreads(fields, least) if most > 1 else None,
    )


def _read_spreads(fields: ProcessorFields, least: int) -> Spreads | None:
    dense = fields.integer("dense_max_patches", 0, 0)
    scale, low, high = (
        fields.number(name, 0, or_zero=True)
        for name in ("dense_max_scale", "dense_min_aspect", "dense_max_aspect")
    )
    if not dense or not (scale or low):
        return None
    if not least <= dense <= LIMIT:
        raise fields.fault("dense_max_patches", f"0, or min_patches to {LIMIT}")
    return Spreads(most=dense, below_scale=scale, min_aspect=low, max_aspect=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTiles(StillRule):
    """See the module."""

    height: int
    width: int
    least: int
    """Tiles, the whole page not counted."""
    most: int
    spreads: Spreads | None = None

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.height * self.width

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer tiles."""
        if max_pixels is None:
            return self
        most = max(1, max_pixels // self.max_item_pixels)
        spreads = self.spreads and replace(self.spreads, most=min(self.spreads.most, most))
        return replace(self, least=min(self.least, most), most=min(self.most, most), spreads=spreads)

    def low_detail(self) -> Self:
        """See `PixelRule`: the whole page alone."""
        return self.bounded(1)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        columns, rows = self._grid(height, width)
        number = columns * rows
        return 3 * self.max_item_pixels * (number + (number > 1))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        columns, rows = self._grid(picture.shape[0], picture.shape[1])
        tiles = cut(self.values, picture, rows, columns, (self.height, self.width))
        found = [
            self._item(each, index // columns + 1, index % columns + 1) for index, each in enumerate(tiles)
        ]
        if len(found) > 1:
            found.append(self._item(self.values.resize(picture, self.height, self.width), 0, 0))
        return tuple(found)

    def _item(self, tile: PixelArray, row: int, column: int) -> EncoderItem:
        return encoder_item(self.values.of(tile), modality="image", grid=(1, row, column))

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Columns and rows."""
        columns, rows = self._grid_of(height, width, self.most)
        spreads = self.spreads
        if (
            spreads is None
            or width / height <= spreads.min_aspect
            or (spreads.max_aspect and width / height > spreads.max_aspect)
            or (spreads.below_scale and columns * self.width / width >= spreads.below_scale)
        ):
            return columns, rows
        return self._grid_of(height, width, spreads.most)

    def _grid_of(self, height: int, width: int, most: int) -> tuple[int, int]:
        return nearest_grid(height, width, self.max_item_pixels, grids(self.least, most, _MOST_SIDE))
