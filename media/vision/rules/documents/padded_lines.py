"""A picture no larger than a screen, as whole patches in order of their lines: the rule of Fuyu. Equal to the
patches that transformers' `FuyuImageProcessorPil` and its processor make of one picture: float32 [patches,
patch · patch · 3], whose values are ordered (y, x, channel), with a grid (1, lines, columns)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from .....protocols.engine.messages import EncoderItem
from ....hashing import encoder_item
from ...config import HALF
from ...images import PixelArray
from ..still_rule import BILINEAR, StillRule, Values, image_fields

_SIZE: Final = {"height": 1080, "width": 1920}
_PATCH: Final = 30
_PADDING: Final = 1
"""The value of the pixels behind a picture's sides, where a file does not say."""
_KINDS: Final = {"FuyuImageProcessor": None}


def open_rule(folder: Path) -> PaddedLines:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    height, width = fields.sides("size", _SIZE)
    patch = fields.square("patch_size", _PATCH)
    if width is None or height % patch or width % patch:
        raise fields.fault("size", f"an object with height and width, multiples of {patch}")
    fields.check_on("do_resize", "do_pad")
    padding = fields.number("padding_value", _PADDING, or_zero=True)
    if not padding.is_integer() or padding > 255 or fields.get("padding_mode", "constant") != "constant":
        raise fields.fault("padding_value", 'an integer of 0 to 255, of the padding_mode "constant"')
    return PaddedLines(
        values=Values.read(fields, HALF, HALF, BILINEAR),
        height=height,
        width=width,
        patch=patch,
        padding=int(padding),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedLines(StillRule):
    """See the module."""

    height: int
    """Of the largest picture."""
    width: int
    patch: int
    padding: int

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.height * self.width

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`."""
        if max_pixels is None or max_pixels >= self.max_item_pixels:
            return self
        scale = (max_pixels / self.max_item_pixels) ** 0.5
        height, width = (
            max(1, int(side * scale) // self.patch) * self.patch for side in (self.height, self.width)
        )
        return replace(self, height=height, width=width)

    def low_detail(self) -> Self:
        """See `PixelRule`."""
        return self.bounded(512 * 512)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        lines, columns = self._patches(*self._resized(height, width))
        return 3 * lines * columns * self.patch**2

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        height, width = self._resized(picture.shape[0], picture.shape[1])
        lines, columns = self._patches(height, width)
        side = self.patch
        padded = np.full((lines * side, columns * side, 3), self.padding, np.uint8)
        padded[:height, :width] = self.values.resize(picture, height, width)
        patches = self.values.of(padded).reshape(3, lines, side, columns, side).transpose(1, 3, 2, 4, 0)
        features = np.ascontiguousarray(patches).reshape(lines * columns, -1)
        return (encoder_item(features, modality="image", grid=(1, lines, columns)),)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        if height <= self.height and width <= self.width:
            return height, width
        scale = min(self.height / height, self.width / width)
        return max(int(height * scale), 1), max(int(width * scale), 1)

    def _patches(self, height: int, width: int) -> tuple[int, int]:
        """Lines and columns."""
        return -(-height // self.patch), -(-width // self.patch)
