"""A picture in the upper left of a grid of tiles, white behind it, and a small whole in front of them: the
rule of Phi-4 multimodal. As `Phi4MultimodalImageProcessor` of transformers, which needs torchvision, makes it
of one picture, but for the rounding of its resized bytes.

All of it is one item, float32 [1 + tiles, 3, side, side], whose grid is (lines of tiles, patches of the
picture on each side of the grid): patches that are white all over are seen by no other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ....protocols.errors import MediaError
from ...hashing import encoder_item
from ..config import HALF
from ..images import FloatArray, PixelArray
from .still_rule import BICUBIC, BILINEAR, StillRule, Values, image_fields
from .tiles import grids

_SIDE: Final = 448
_PATCH: Final = 14
_MOST: Final = 36
_LIMIT: Final = 256
_KINDS: Final = {"Phi4MultimodalImageProcessor": None}
_LEAST_SIDE: Final = 10
"""Pixels of a resized picture."""
_CUBIC: Final = -0.75
"""The free parameter of torch's cubic convolution."""


def open_rule(folder: Path) -> PaddedTiles:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    side = fields.square("size", _SIDE)
    patch = fields.integer("patch_size", _PATCH)
    if side % patch:
        raise fields.fault("patch_size", f"a divisor of {side}")
    most = fields.integer("dynamic_hd", _MOST)
    if most > _LIMIT:
        raise fields.fault("dynamic_hd", f"an integer of at most {_LIMIT}")
    values = Values.read(fields, HALF, HALF)
    if values.resample != BICUBIC:
        raise fields.fault("resample", f"{BICUBIC}")
    return PaddedTiles(values=replace(values, resample=BILINEAR), side=side, patch=patch, most=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedTiles(StillRule):
    """See the module."""

    side: int
    patch: int
    most: int
    """Tiles, the whole picture not counted."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.side**2 * (self.most + 1)

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer tiles."""
        if max_pixels is None:
            return self
        return replace(self, most=max(1, min(self.most, max_pixels // self.side**2)))

    def low_detail(self) -> Self:
        """See `PixelRule`: one tile."""
        return replace(self, most=1)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        columns, lines = self._grid(height, width)
        return 3 * self.side**2 * (1 + columns * lines)

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        side, (height, width) = self.side, (picture.shape[0], picture.shape[1])
        columns, lines = self._grid(height, width)
        across, down = columns * side / width, lines * side / height
        if across < down:
            tall, wide = int(height * across), columns * side
        else:
            tall, wide = lines * side, int(width * down)
        if min(tall, wide) < _LEAST_SIDE:
            raise MediaError(
                f"The image is {width} x {height} pixels, {wide} x {tall} once resized; each side must be at "
                f"least {_LEAST_SIDE} then.",
                param="image",
            )
        large = np.full((lines * side, columns * side, 3), 255, np.uint8)
        large[:tall, :wide] = self.values.resize(picture, tall, wide)
        values = self.values.of(large)
        tiles = values.reshape(3, lines, side, columns, side).transpose(1, 3, 0, 2, 4)
        small = _shrunk(_shrunk(values, 1, side), 2, side)
        features = np.concatenate((small[None], tiles.reshape(-1, 3, side, side)))
        shown = (large.shape[0] - tall) // self.patch, (large.shape[1] - wide) // self.patch
        grid = (
            lines,
            large.shape[0] // self.patch - shown[0],
            large.shape[1] // self.patch - shown[1],
        )
        return (encoder_item(features, modality="image", grid=grid),)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Columns and lines: enough for all pixels, or else of the nearest shape; of equal ones the larger,
        unless it has more than twice the picture's pixels."""
        columns, lines = math.ceil(width / self.side), math.ceil(height / self.side)
        if columns * lines <= self.most:
            return columns, lines
        best, least = (1, 1), float("inf")
        for grid in grids(1, self.most):
            difference = abs(width / height - grid[0] / grid[1])
            area = self.side**2 * grid[0] * grid[1]
            if difference < least or (difference == least and height * width > 0.5 * area):
                best, least = grid, difference
        return best


def _shrunk(values: FloatArray, axis: int, size: int) -> FloatArray:
    """One axis by cubic convolution between four neighbours, however far it shrinks."""
    length = values.shape[axis]
    if length == size:
        return values
    places = (np.arange(size) + 0.5) * (length / size) - 0.5
    first = np.floor(places)
    behind = (places - first).astype(np.float32)
    distances = np.stack((behind + 1, behind, 1 - behind, 2 - behind))
    near = ((_CUBIC + 2) * distances - (_CUBIC + 3)) * distances**2 + 1
    far = ((distances - 5) * distances + 8) * distances * _CUBIC - 4 * _CUBIC
    weights = np.where(distances <= 1, near, far).astype(np.float32)
    indices = np.clip(first.astype(np.intp) + np.arange(-1, 3)[:, None], 0, length - 1)
    shape = [1] * values.ndim
    shape[axis] = size
    found = np.zeros((*values.shape[:axis], size, *values.shape[axis + 1 :]), np.float32)
    for index, weight in zip(indices, weights, strict=True):
        found += np.take(values, index, axis) * weight.reshape(shape)
    return found
