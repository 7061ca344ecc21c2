"""A picture as a large square and a small one, each with a frame of the mean colour: the rule of DeepSeek-VL
with two towers. Equal to what transformers' `DeepseekVLHybridImageProcessorPil` makes of it.

Both are one item, float32 [values]: first those of the large square, [3, side, side], then those of the small
one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from .....protocols.engine.messages import EncoderItem
from ....hashing import encoder_item
from ...config import CLIP_MEAN, CLIP_STD, NUM_FILTERS
from ...images import PixelArray
from ..framed_square import LEAST, SIDE, framed
from ..still_rule import BICUBIC, StillRule, Values, image_fields

_LARGE: Final = 1024
_KINDS: Final = {"DeepseekVLHybridImageProcessor": None}


def open_rule(folder: Path) -> TwoSquares:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    large_side, side = fields.square("high_res_size", _LARGE), fields.square("size", SIDE)
    fields.check_on("do_resize", "do_pad")
    least = fields.integer("min_size", LEAST)
    if least > min(large_side, side):
        raise fields.fault("min_size", f"an integer of at most {min(large_side, side)}")
    values = Values.read(fields)
    resample = fields.integer("high_res_resample", BICUBIC, 0)
    if resample >= NUM_FILTERS:
        raise fields.fault("high_res_resample", f"one of Pillow's filters, 0 to {NUM_FILTERS - 1}")
    deviation = fields.rgb("high_res_image_std", CLIP_STD)
    if not all(deviation):
        raise fields.fault("high_res_image_std", "not zero")
    large = replace(
        values, mean=fields.rgb("high_res_image_mean", CLIP_MEAN), std=deviation, resample=resample
    )
    return TwoSquares(values=values, large=large, large_side=large_side, side=side, least=least)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSquares(StillRule):
    """See the module."""

    large: Values
    large_side: int
    side: int
    least: int
    """Pixels of the picture's shorter side."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.large_side**2 + self.side**2

    def num_values(self, height: int, width: int) -> int:  # noqa: ARG002 (all have one size)
        """See `StillRule`."""
        return 3 * self.max_item_pixels

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        large = framed(self.large, picture, self.large_side, self.least)
        small = self.values.resize(large, self.side, self.side)
        features = np.concatenate([self.large.of(large).ravel(), self.values.of(small).ravel()])
        return (encoder_item(features, modality="image"),)
