"""A picture in its own shape on a budget of rows, as patches in order of their lines: the rule of Gemma 4.
Equal to what transformers' `Gemma4ImageProcessorPil` makes of one picture, without the padding behind it:
float32 [patches, values], a patch's values ordered (y, x, channel). So is each frame of a video, on a smaller
budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from ....protocols.engine.messages import EncoderItem, MediaKind
from ...hashing import encoder_item
from ..config import PixelConfig, ProcessorFields, VideoConfig, read_video
from ..images import PixelArray
from .framed_rule import FramedRule
from .still_rule import Values, image_fields

_PATCH: Final = 16
_POOLED: Final = 3
_MAX_ROWS: Final = 280
_LOW_DETAIL_ROWS: Final = 70
"""The least that the models were trained with."""
_FRAME_ROWS: Final = 70
_NUM_FRAMES: Final = 32
_MAX_FRAMES: Final = 256
_KINDS: Final = {"Gemma4ImageProcessor": None}


def open_rule(folder: Path) -> PooledPatches:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    values = Values.read(fields, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    values = replace(values, do_normalize=fields.flag("do_normalize", default=False))
    default = PooledFrame(values=values, patch_size=_PATCH, pooled=_POOLED, max_rows=_MAX_ROWS)
    pictures = _read_pooled(fields, default)
    video = ProcessorFields.optional(folder, "video_processor", "video_preprocessor_config.json")
    return PooledPatches(values=values, pictures=pictures, videos=_read_videos(video, pictures))


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledFrame:
    """How one picture becomes patches (a `FrameRule`)."""

    values: Values
    patch_size: int
    pooled: int
    """Patches on a side of the square that becomes a row."""
    max_rows: int

    @property
    def side(self) -> int:
        """Pixels on a side of a row's square."""
        return self.pooled * self.patch_size

    @property
    def max_pixels(self) -> int:
        """Of the resized picture."""
        return self.max_rows * self.side**2

    def bounded(self, max_pixels: int | None) -> Self:
        """With rows for no more pixels, but one."""
        if max_pixels is None:
            return self
        return replace(self, max_rows=max(min(self.max_rows, max_pixels // self.side**2), 1))

    def size(self, height: int, width: int) -> tuple[int, int]:
        """The largest in the picture's shape of at most `max_rows` squares; at least one on each side."""
        factor = math.sqrt(self.max_pixels / (height * width))
        tall, wide = (math.floor(factor * each / self.side) for each in (height, width))
        if tall == 0:
            tall, wide = 1, min(width // height, self.max_rows)
        elif wide == 0:
            tall, wide = min(height // width, self.max_rows), 1
        return tall * self.side, wide * self.side

    def item(self, frame: PixelArray, modality: MediaKind) -> EncoderItem:
        """Patches of uint8 [height, width, 3] of such a size."""
        size = self.patch_size
        pixels = self.values.of(frame)
        tall, wide = pixels.shape[1] // size, pixels.shape[2] // size
        lines = pixels.reshape(3, tall, size, wide, size).transpose(1, 3, 2, 4, 0)
        patches = np.ascontiguousarray(lines).reshape(tall * wide, 3 * size**2)
        return encoder_item(patches, modality=modality, grid=(1, tall, wide))


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledPatches(FramedRule):
    """See the module."""

    pictures: PooledFrame

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return max(self.pictures.max_pixels, self._frame.max_pixels)

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`."""
        videos = replace(self.videos, frames=self._frame.bounded(max_pixels))
        return replace(self, pictures=self.pictures.bounded(max_pixels), videos=videos)

    def low_detail(self) -> Self:
        """See `PixelRule`."""
        rows = min(self.pictures.max_rows, _LOW_DETAIL_ROWS)
        return replace(self, pictures=replace(self.pictures, max_rows=rows))

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        return 3 * math.prod(self.pictures.size(height, width))

    @property
    def _frame(self) -> PooledFrame:
        """How a video's frame becomes patches."""
        assert isinstance(self.videos.frames, PooledFrame), "that is how it is made"
        return self.videos.frames

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        resized = self.values.resize(picture, *self.pictures.size(*picture.shape[:2]))
        return (self.pictures.item(resized, "image"),)


def _read_pooled(fields: ProcessorFields, default: PooledFrame) -> PooledFrame:
    fields.check_on("do_resize")
    return replace(
        default,
        patch_size=fields.integer("patch_size", default.patch_size),
        pooled=fields.integer("pooling_kernel_size", default.pooled),
        max_rows=fields.integer("max_soft_tokens", default.max_rows),
    )


def _read_videos(fields: ProcessorFields, pictures: PooledFrame) -> VideoConfig:
    """Of a folder's video processor; what it does not say is as of pictures, but for the rows."""
    values = pictures.values
    if not fields.is_empty:
        values = Values.read(fields, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    frame = _read_pooled(fields, replace(pictures, values=values, max_rows=_FRAME_ROWS))
    pixels = PixelConfig(
        min_pixels=1,
        max_pixels=frame.max_pixels,
        patch_size=frame.patch_size,
        merge_size=frame.pooled,
        temporal_patch_size=1,
        mean=values.mean,
        std=values.std,
        rescale_factor=values.factor,
        resample=values.resample,
        do_rescale=values.do_rescale,
        do_normalize=values.do_normalize,
    )
    found = read_video(fields, pixels, num_frames=_NUM_FRAMES, min_frames=1, max_frames=_MAX_FRAMES)
    return replace(found, frames=frame, bounds_frames=True)
