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
        return fixed_point.resize(picture, height, width, is_cubic=self.resample == BICUBIC)

    def of(self, picture: PixelArray) -> FloatArray:
        """uint8 [h, w, 3] → float32 [3, h, w], with the factor multiplied into mean and deviation."""
        table = np.tile(np.arange(256, dtype=np.float32), (3, 1))
        if self.do_normalize:
            mean, std = (np.array(each, np.float32)[:, None] for each in (self.mean, self.std))
            if self.do_rescale:
                mean, std = (each * np.float32(1 / self.factor) for each in (mean, std))
            table = (table - mean) / std
        elif self.do_rescale:
            table *= np.float32(self.factor)
        return np.stack([table[channel][picture[:, :, channel]] for channel in range(3)])
