"""A picture as patches in its own shape, made smaller if it is too large, with a frame below and to the
right: the rule of Kimi K2.5. Equal to what transformers' `Kimi_K25ImageProcessor` makes of one picture:
float32 [patches, values] in order of their lines, a patch's values ordered (channel, y, x)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..config import HALF
from ..images import PixelArray
from .still_rule import BICUBIC, StillRule, image_fields
from .torchvision_values import TorchvisionValues

_KINDS: Final = {"Kimi_K25ImageProcessor": None}
_SIZE: Final = {"max_height": 512, "max_width": 512}


def open_rule(folder: Path) -> PaddedPatches:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    fields.check_on("do_resize")
    size = fields.get("size", _SIZE)
    longest = size.get("max_height") if isinstance(size, dict) else None
    if type(longest) is not int or longest < 1 or size.get("max_width") != longest:
        raise fields.fault("size", "an object with equal max_height and max_width, positive")
    return PaddedPatches(
        values=TorchvisionValues.read_bounded(fields, HALF, HALF, BICUBIC),
        patch=fields.integer("patch_size", 14),
        merge=fields.integer("merge_size", 2),
        most=fields.integer("max_patches", 16384),
        longest=longest,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedPatches(StillRule):
    """See the module."""

    patch: int
    """Pixels on its side."""
    merge: int
    """Patches on a side of the square that becomes a row."""
    most: int
    """Patches of a picture, before the frame."""
    longest: int
    """Patches on a side."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`: with the frame, and with patches that are not whole: `most` has neither."""
        added = self.merge + 1
        return (self.most + added * 2 * self.longest + added**2) * self.patch**2

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`."""
        if max_pixels is None:
            return self
        most = max(1, min(self.most, max_pixels // self.patch**2))
        return replace(self, most=most, longest=min(self.longest, most))

    def low_detail(self) -> Self:
        """See `PixelRule`."""
        return self.bounded(512 * 512)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        return 3 * math.prod(map(self._framed, self._resized(height, width)))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        tall, wide = self._resized(picture.shape[0], picture.shape[1])
        framed = np.zeros((self._framed(tall), self._framed(wide), 3), np.uint8)
        framed[:tall, :wide] = self.values.resize(picture, tall, wide)
        size = self.patch
        lines, columns = framed.shape[0] // size, framed.shape[1] // size
        pixels = self.values.of(framed).reshape(3, lines, size, columns, size)
        patches = np.ascontiguousarray(pixels.transpose(1, 3, 0, 2, 4)).reshape(lines * columns, -1)
        return (encoder_item(patches, modality="image", grid=(1, lines, columns)),)

    def _framed(self, side: int) -> int:
        square = self.patch * self.merge
        return -(-side // square) * square

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        number = max(1.0, height // self.patch) * max(1.0, width // self.patch)
        most = self.longest * self.patch
        scale = min(1.0, math.sqrt(self.most / number), most / height, most / width)
        tall, wide = (min(max(1, int(side * scale)), most) for side in (height, width))
        return tall, wide
