"""A picture in its own shape in the middle of a square of the mean colour: the rule of DeepSeek-VL and Janus.
Equal to what transformers' `…ImageProcessorPil` of either makes of it: float32 [3, side, side]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..images import PixelArray
from .still_rule import StillRule, Values, image_fields

SIDE: Final = 384
LEAST: Final = 14
_KINDS: Final = {"DeepseekVLImageProcessor": None, "JanusImageProcessor": None}


def open_rule(folder: Path) -> FramedSquare:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    side = fields.square("size", SIDE)
    fields.check_on("do_resize", "do_pad")
    least = fields.integer("min_size", LEAST)
    if least > side:
        raise fields.fault("min_size", f"an integer of at most {side}")
    return FramedSquare(values=Values.read(fields), side=side, least=least)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedSquare(StillRule):
    """See the module."""

    side: int
    least: int
    """Pixels of the picture's shorter side."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.side**2

    def num_values(self, height: int, width: int) -> int:  # noqa: ARG002 (all have one size)
        """See `StillRule`."""
        return 3 * self.max_item_pixels

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        square = framed(self.values, picture, self.side, self.least)
        return (encoder_item(self.values.of(square), modality="image"),)


def framed(
    values: Values, picture: PixelArray, side: int, least: int, colour: Sequence[int] | None = None
) -> PixelArray:
    """uint8 [height, width, 3] → [side, side, 3]; the picture's shorter side has `least` pixels or more. The
    frame is of the mean colour unless another is given."""
    height, width = picture.shape[:2]
    scale = side / max(height, width)
    height, width = (max(round(each * scale), least) for each in (height, width))
    square = np.empty((side, side, 3), np.uint8)
    square[:] = colour or [int(each * 255) for each in values.mean]
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = values.resize(picture, height, width)
    return square
