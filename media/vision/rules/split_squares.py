"""A picture as rows of squares and, if there are several, the whole of it behind them: the rule of Idefics 3
and SmolVLM. Equal to what transformers' `Idefics3ImageProcessorPil` and `SmolVLMImageProcessorPil` make of
it.

Each square is an item, float32 [3, side, side], whose grid is (1, row, column), counted from one; that of
the whole picture is (1, 0, 0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..config import HALF
from ..images import PixelArray
from .still_rule import LANCZOS, StillRule, Values, image_fields

_SIDE: Final = 364
_MOST: Final = 4096
"""Pixels on a side, whatever a file says."""
_KINDS: Final = {"Idefics3ImageProcessor": None, "SmolVLMImageProcessor": None}


def open_rule(folder: Path) -> SplitSquares:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    longest, side = fields.longest("size", 4 * _SIDE), fields.longest("max_image_size", _SIDE)
    return SplitSquares(
        values=Values.read(fields, HALF, HALF, LANCZOS),
        longest=min(longest, _MOST) if fields.flag("do_resize", default=True) else None,
        side=side,
        splits=fields.flag("do_image_splitting", default=True),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSquares(StillRule):
    """See the module."""

    longest: int | None
    """Pixels of the longer side before it is cut; None: as it is."""
    side: int
    splits: bool

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.side**2

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer squares."""
        if max_pixels is None or self.longest is None:
            return self
        return replace(self, longest=max(self.side, min(self.longest, int(max_pixels**0.5))))

    def low_detail(self) -> Self:
        """See `PixelRule`: the whole picture alone."""
        return replace(self, splits=False)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        rows, columns = self._grid(*self._resized(height, width)) if self.splits else (1, 1)
        number = rows * columns
        return 3 * self.max_item_pixels * (number + (number > 1))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        side = self.side
        picture = self.values.resize(picture, *self._resized(picture.shape[0], picture.shape[1]))
        found: list[EncoderItem] = []
        if self.splits:
            rows, columns = self._grid(picture.shape[0], picture.shape[1])
            picture = self.values.resize(picture, rows * side, columns * side)
            if rows * columns > 1:
                found = [
                    self._item(picture[y * side :, x * side :][:side, :side], y + 1, x + 1)
                    for y in range(rows)
                    for x in range(columns)
                ]
        return (*found, self._item(self.values.resize(picture, side, side), 0, 0))

    def _item(self, square: PixelArray, row: int, column: int) -> EncoderItem:
        return encoder_item(self.values.of(square), modality="image", grid=(1, row, column))

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """So that the longer side is as long as it may be, and the shorter one even."""
        longest, ratio = self.longest, width / height
        if longest is None:
            return height, width
        if width >= height:
            shorter = int(longest / ratio)
            return max(shorter + shorter % 2, 1), longest
        shorter = int(longest * ratio)
        return longest, max(shorter + shorter % 2, 1)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of squares that cover so many pixels, in about their shape."""
        side, ratio = self.side, width / height
        if width >= height:
            columns = -(-width // side)
            return -(-int(columns * side / ratio) // side), columns
        rows = -(-height // side)
        return rows, -(-int(rows * side * ratio) // side)
