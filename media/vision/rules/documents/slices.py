"""A picture as the whole of it in about its own shape and, if it is large, slices of a larger one: the rule
of MiniCPM-V. Equal to what transformers' `MiniCPMV4_6ImageProcessorPil` makes of it.

Each is an item, float32 [3, patch, patches · patch]: patches side by side, in order of their lines. Its grid
is (row of slices, lines, columns), counted from one; that of the whole picture begins with 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from .....protocols.engine.messages import EncoderItem
from ....hashing import encoder_item
from ...config import HALF
from ...images import PixelArray
from ..still_rule import StillRule, Values, image_fields

_SIDE: Final = 448
_PATCH: Final = 14
_MOST: Final = 9
_LIMIT: Final = 256
_KINDS: Final = {"MiniCPMV4_6ImageProcessor": "16x", "MiniCPMOcrImageProcessor": "4x"}
"""How many patches become a row, where a file does not say."""
PATCHES: Final = {"4x": 4, "16x": 16}
"""Of each row."""
_ENLARGES: Final = {"always": True, "never": False}


def open_rule(folder: Path) -> Slices:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    default = fields.kind(_KINDS)
    mode, small = fields.get("downsample_mode", default), fields.get("small_image_upsize", "always")
    if mode not in PATCHES:
        raise fields.fault("downsample_mode", " or ".join(PATCHES))
    if small not in _ENLARGES:
        raise fields.fault("small_image_upsize", " or ".join(_ENLARGES))
    fields.check_on("do_resize")
    most = fields.integer("max_slice_nums", _MOST)
    if most > _LIMIT:
        raise fields.fault("max_slice_nums", f"an integer of at most {_LIMIT}")
    return Slices(
        values=Values.read(fields, HALF, HALF),
        side=fields.integer("scale_resolution", _SIDE),
        patch=fields.integer("patch_size", _PATCH),
        merge=math.isqrt(PATCHES[mode]),
        most=most if fields.flag("slice_mode", default=True) else 1,
        enlarges=_ENLARGES[small],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices(StillRule):
    """See the module."""

    side: int
    """Each has about as many pixels as a square of this side."""
    patch: int
    merge: int
    """Patches of a row, on a side."""
    most: int
    """Slices, the whole picture not counted."""
    enlarges: bool
    """Pictures that are not cut are never reduced."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`: sides are rounded to whole rows."""
        return (self.side + self.patch * self.merge) ** 2

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer slices."""
        if max_pixels is None:
            return self
        return replace(self, most=max(1, min(self.most, max_pixels // self.side**2)))

    def low_detail(self) -> Self:
        """See `PixelRule`: the whole picture alone."""
        return replace(self, most=1)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        grid = self._grid(height, width)
        whole = self._whole(height, width, is_cut=grid is not None)
        return 3 * (math.prod(whole) + (math.prod(self._refined(height, width, *grid)) if grid else 0))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        return tuple(self._items(picture))

    def _items(self, picture: PixelArray) -> Iterator[EncoderItem]:
        height, width = picture.shape[:2]
        grid = self._grid(height, width)
        whole = self._whole(height, width, is_cut=grid is not None)
        yield self._item(self.values.resize(picture, *whole), 0)
        if grid is None:
            return
        large = self.values.resize(picture, *self._refined(height, width, *grid))
        tall, wide = large.shape[0] // grid[0], large.shape[1] // grid[1]
        for row in range(grid[0]):
            for column in range(grid[1]):
                yield self._item(large[row * tall :, column * wide :][:tall, :wide], row + 1)

    def _item(self, picture: PixelArray, row: int) -> EncoderItem:
        side = self.patch
        lines, columns = picture.shape[0] // side, picture.shape[1] // side
        patches = self.values.of(picture).reshape(3, lines, side, columns, side)
        features = np.ascontiguousarray(patches.transpose(0, 2, 1, 3, 4)).reshape(3, side, -1)
        return encoder_item(features, modality="image", grid=(row, lines, columns))

    def _grid(self, height: int, width: int) -> tuple[int, int] | None:
        """Rows and columns of slices, nearly as many as have the picture's pixels, in about its shape; None:
        it is not cut."""
        enough = min(math.ceil(width * height / self.side**2), self.most)
        if enough <= 1:
            return None
        best, least = (1, 1), float("inf")
        for number in range(max(enough - 1, 2), min(enough + 1, self.most) + 1):
            for rows in (each for each in range(1, number + 1) if number % each == 0):
                columns = number // rows
                error = abs(math.log(width / height) - math.log(columns / rows))
                if error < least or (error == least and rows > best[0]):
                    best, least = (rows, columns), error
        return best

    def _whole(self, height: int, width: int, *, is_cut: bool) -> tuple[int, int]:
        return self._resized(height, width, enlarges=self.enlarges and not is_cut)

    def _refined(self, height: int, width: int, rows: int, columns: int) -> tuple[int, int]:
        """Height and width of the larger picture."""
        tall, wide = self._resized(
            _rounded(height, rows) / rows, _rounded(width, columns) / columns, enlarges=True
        )
        return tall * rows, wide * columns

    def _resized(self, height: float, width: float, *, enlarges: bool) -> tuple[int, int]:
        if height * width > self.side**2 or enlarges:
            ratio = width / height
            height = int(self.side / math.sqrt(ratio))
            width = int(height * ratio)
        square = self.patch * self.merge
        return _rounded(height, square), _rounded(width, square)


def _rounded(length: float, factor: int) -> int:
    return max(round(length / factor) * factor, factor)
