"""Pictures as merged patches, bounded by the pixels of a whole temporal patch: the rule of GLM-4V. Equal
to what transformers' `Glm4vImageProcessorPil` makes of one picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from ....protocols.engine.messages import EncoderItem
from ..config import CLIP_MEAN, CLIP_STD, PixelConfig, read_pixels
from ..images import PixelArray, patch_item, resize, smart_resize
from .still_rule import StillRule, Values, image_fields

_KINDS: Final = {"Glm4vImageProcessor": None, "Glm46VImageProcessor": None, "GlmgaImageProcessor": None}


def open_rule(folder: Path) -> GlmPatches:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    if fields.integer("patch_expand_factor", 1) != 1:
        raise fields.fault("patch_expand_factor", "1")
    config = read_pixels(fields, 14, 112 * 112, 28 * 28 * 15_000, CLIP_MEAN, CLIP_STD, old_names=False)
    return GlmPatches(values=Values.read(fields), config=config)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmPatches(StillRule):
    """See the module."""

    config: PixelConfig
    """Its bounds are of all frames of a temporal patch together."""

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.config.max_pixels // self.config.temporal_patch_size

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`."""
        if max_pixels is None:
            return self
        most = min(self.config.max_pixels, max_pixels * self.config.temporal_patch_size)
        least = min(self.config.min_pixels, most)
        return replace(self, config=replace(self.config, min_pixels=least, max_pixels=most))

    def low_detail(self) -> Self:
        """See `PixelRule`."""
        return self.bounded(512 * 512)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        height, width = self._resized(height, width)
        return 3 * self.config.temporal_patch_size * height * width

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        height, width = self._resized(picture.shape[0], picture.shape[1])
        return (patch_item([resize(picture, height, width, self.config)], self.config, "image"),)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        config = self.config
        if not config.do_resize:
            return height, width
        factor, depth = config.factor, config.temporal_patch_size
        if min(height, width) < factor:
            scale = factor / min(height, width)
            height, width = int(height * scale), int(width * scale)
        # Of each of equal frames, their part.
        return smart_resize(
            height,
            width,
            factor=factor,
            min_pixels=config.min_pixels / depth,
            max_pixels=config.max_pixels / depth,
        )
