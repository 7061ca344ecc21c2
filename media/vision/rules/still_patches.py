"""Pictures as patches of any grid, bounded by the pixels of a picture: the rule of PaddleOCR-VL,
VideoLLaMA 3, Cohere Compass and others. Equal to what the image processors of `transformers` that `_KINDS`
lists make of one picture, where they need no torchvision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, Self

from ....protocols.engine.messages import EncoderItem
from ..config import CLIP_MEAN, CLIP_STD, HALF, PixelConfig, Rgb, read_pixels
from ..images import PixelArray, patch_item, resize, smart_resize
from .still_rule import BICUBIC, StillRule, Values, image_fields


class _Defaults(NamedTuple):
    """What a class of image processors takes where a file does not say."""

    bounds: tuple[int, int]
    """Pixels of the smallest and the largest picture."""
    merge_size: int = 2
    mean: Rgb = CLIP_MEAN
    std: Rgb = CLIP_STD
    temporal_patch_size: int = 1
    patch_size: int = 14
    enlarges: bool = False
    """A side shorter than a row's, before all else."""
    lengthens: bool = False
    """Each of its sides that is shorter than a row's, before all else."""
    by_line: bool = False
    """Patches are in order of their lines, and squares of them are put together by the model."""
    meaningless_size: list[int] | None = None
    """Published files have it, and the class takes its own bounds instead."""
    resample: int | None = None
    """Pillow's filter, whatever a file says."""


_KINDS: Final = {
    "PaddleOCRVLImageProcessor": _Defaults((384 * 384, 1536 * 1536), lengthens=True, by_line=True),
    "VideoLlama3ImageProcessor": _Defaults((56 * 56, 28 * 28 * 1280), 1, HALF, HALF),
    "CohereCompassImageProcessor": _Defaults((56 * 56, 28 * 28 * 1280), temporal_patch_size=2),
    "Cosmos3EdgeImageProcessor": _Defaults(
        (256 * 256, 4096 * 4096), 2, HALF, HALF, patch_size=16, enlarges=True
    ),
    "MiniMaxM3VLImageProcessor": _Defaults(
        (4 * 28 * 28, 672 * 672), temporal_patch_size=2, meaningless_size=[672, 672]
    ),
    "HunYuanVLImageProcessor": _Defaults(
        (512 * 512, 2048 * 2048), patch_size=16, by_line=True, resample=BICUBIC
    ),
    "Ernie4_5_VLMoeImageProcessor": _Defaults((56 * 56, 28 * 28 * 6177)),
    "Ernie4_5_VL_MoeImageProcessor": _Defaults((56 * 56, 28 * 28 * 6177)),
}


def open_rule(folder: Path) -> StillPatches:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    kind = fields.kind(_KINDS)
    if kind.meaningless_size is not None and fields.get("size") == kind.meaningless_size:
        fields = fields.without("size")
    config = read_pixels(fields, kind.patch_size, *kind.bounds, kind.mean, kind.std, old_names=True)
    config = replace(
        config,
        merge_size=fields.integer("merge_size", kind.merge_size),
        temporal_patch_size=fields.integer("temporal_patch_size", kind.temporal_patch_size),
        resample=config.resample if kind.resample is None else kind.resample,
    )
    values = Values.read(fields, kind.mean, kind.std)
    return StillPatches(
        values=values, config=config, enlarges=kind.enlarges, lengthens=kind.lengthens, by_line=kind.by_line
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StillPatches(StillRule):
    """See the module."""

    config: PixelConfig
    enlarges: bool = False
    lengthens: bool = False
    by_line: bool = False

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.config.max_pixels

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`."""
        if max_pixels is None:
            return self
        most = min(self.config.max_pixels, max_pixels)
        least = min(self.config.min_pixels, most)
        return replace(self, config=replace(self.config, min_pixels=least, max_pixels=most, ceiling=most))

    def low_detail(self) -> Self:
        """See `PixelRule`."""
        return self.bounded(512 * 512)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        height, width = self._resized(height, width)
        return 3 * self.config.temporal_patch_size * height * width

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        config = self.config
        resized = resize(picture, *self._resized(picture.shape[0], picture.shape[1]), config)
        return (patch_item([resized], replace(config, merge_size=1) if self.by_line else config, "image"),)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        config = self.config
        if not config.do_resize:
            return height, width
        factor = config.factor
        if self.enlarges and min(height, width) < factor:
            scale = factor / min(height, width)
            height, width = int(height * scale), int(width * scale)
        if self.lengthens and height < factor:
            height, width = factor, round(width * factor / height)
        if self.lengthens and width < factor:
            height, width = round(height * factor / width), factor
        return smart_resize(
            height,
            width,
            factor=factor,
            min_pixels=config.min_pixels,
            max_pixels=config.max_pixels,
            ceiling=config.ceiling,
        )
