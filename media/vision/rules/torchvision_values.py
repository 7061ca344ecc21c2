"""From bytes to what a tower takes as the image processors of `transformers` have it that run on torchvision,
for families that have no other: equal bit for bit, without torchvision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from .. import fixed_point
from ..config import ProcessorFields, Rgb
from ..images import FloatArray, PixelArray
from .still_rule import BICUBIC, BILINEAR, Values


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchvisionValues(Values):
    """See the module."""

    @classmethod
    def read_bounded(cls, fields: ProcessorFields, mean: Rgb, std: Rgb, resample: int) -> Self:
        """Of an image processor, whose class has these defaults. Raises ModelLoadError naming the field."""
        found = cls.read(fields, mean, std, resample)
        if found.resample not in (BILINEAR, BICUBIC):
            raise fields.fault("resample", f"{BILINEAR}, bilinear, or {BICUBIC}, bicubic")
        return found

    def resize(self, picture: PixelArray, height: int, width: int) -> PixelArray:
        """uint8 [h, w, 3] → [height, width, 3]."""
        return fixed_point.resize(picture, height, width, self.resample)

    def of(self, picture: PixelArray) -> FloatArray:
        """uint8 [h, w, 3] → float32 [3, h, w]."""
        table = fixed_point.value_table(
            self.mean, self.std, self.factor, do_rescale=self.do_rescale, do_normalize=self.do_normalize
        )
        return np.stack([table[channel][picture[:, :, channel]] for channel in range(3)])
