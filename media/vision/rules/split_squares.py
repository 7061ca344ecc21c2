"""A picture as rows of squares and, if there are several, the whole of it behind them: the rule of Idefics 3
and SmolVLM. Equal to what transformers' `Idefics3ImageProcessorPil` and `SmolVLMImageProcessorPil` make of
it.

Each square is an item, float32 [3, side, side], whose grid is (1, row, column), counted from one; that of
the whole picture is (1, 0, 0). SmolVLM takes videos as well: each frame is an item, the whole of it, without
a grid. Frames equal what its video processor makes of them, which runs on torchvision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from ....protocols.engine.messages import EncoderItem
from ...hashing import encoder_item
from ..config import HALF, PixelConfig, VideoConfig, video_fields
from ..fixed_point import LANCZOS
from ..images import PixelArray, even_sides
from .framed_rule import FramedRule
from .still_rule import Values, image_fields

_SIDE: Final = 364
_MOST: Final = 4096
"""Pixels on a side, whatever a file says."""
_FPS: Final = 1.0
_MAX_FRAMES: Final = 64
_SKIPPED_S: Final = 1.0
_KINDS: Final = {"Idefics3ImageProcessor": None, "SmolVLMImageProcessor": None}


def open_rule(folder: Path) -> SplitSquares:
    """See `pixel_rule.open_rule`."""
    fields = image_fields(folder)
    fields.kind(_KINDS)
    longest, side = fields.longest("size", 4 * _SIDE), fields.longest("max_image_size", _SIDE)
    values = Values.read(fields, HALF, HALF, LANCZOS)
    return SplitSquares(
        values=values,
        videos=_read_videos(folder, values, side),
        longest=min(longest, _MOST) if fields.flag("do_resize", default=True) else None,
        side=side,
        splits=fields.flag("do_image_splitting", default=True),
    )


def _read_videos(folder: Path, values: Values, side: int) -> VideoConfig:
    """Of the video processor's file, or of what the image processor's has of videos."""
    fields = video_fields(folder)
    sampling = fields.get("video_sampling")
    sampling = {} if sampling is None else sampling
    if not isinstance(sampling, dict):
        raise fields.fault("video_sampling", "an object")
    size = sampling.get("video_size", fields.get("size"))
    longest = size.get("longest_edge") if isinstance(size, dict) else 4 * _SIDE
    fps, most = (sampling.get(name) for name in ("fps", "max_frames"))
    fps = fields.get("fps", _FPS) if fps is None else fps
    most = fields.get("num_frames", _MAX_FRAMES) if most is None else most
    if type(longest) is not int or longest < 1 or type(most) is not int or not 0 < most <= _MOST:
        raise fields.fault("video_sampling", f"an object with a video_size, and max_frames up to {_MOST}")
    if type(fps) not in (int, float) or not fps > 0:
        raise fields.fault("video_sampling", "an object with a positive fps")
    values = Values.read(fields, values.mean, values.std, values.resample)
    pixels = PixelConfig(
        min_pixels=1,
        max_pixels=side**2,
        patch_size=1,
        merge_size=1,
        temporal_patch_size=1,
        mean=values.mean,
        std=values.std,
        rescale_factor=values.factor,
        resample=values.resample,
        do_rescale=values.do_rescale,
        do_normalize=values.do_normalize,
        first_longest=min(longest, _MOST),
        as_torchvision=True,
    )
    return VideoConfig(
        pixels=pixels,
        fps=float(fps),
        min_frames=1,
        max_frames=most,
        skipped_s=_SKIPPED_S,
        bounds_frames=True,
        frame_size=(side, side),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSquares(FramedRule):
    """See the module."""

    longest: int | None
    """Pixels of the longer side before it is cut; None: as it is."""
    side: int
    splits: bool

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        return self.side**2

    def bounded(self, max_pixels: int | None) -> Self:
        """See `PixelRule`: fewer squares."""
        if max_pixels is None or self.longest is None:
            return self
        return replace(self, longest=max(self.side, min(self.longest, int(max_pixels**0.5))))

    def low_detail(self) -> Self:
        """See `PixelRule`: the whole picture alone."""
        return replace(self, splits=False)

    def num_values(self, height: int, width: int) -> int:
        """See `StillRule`."""
        rows, columns = self._grid(*self._resized(height, width)) if self.splits else (1, 1)
        number = rows * columns
        return 3 * self.max_item_pixels * (number + (number > 1))

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """See `StillRule`."""
        side = self.side
        picture = self.values.resize(picture, *self._resized(picture.shape[0], picture.shape[1]))
        found: list[EncoderItem] = []
        if self.splits:
            rows, columns = self._grid(picture.shape[0], picture.shape[1])
            picture = self.values.resize(picture, rows * side, columns * side)
            if rows * columns > 1:
                found = [
                    self._item(picture[y * side :, x * side :][:side, :side], y + 1, x + 1)
                    for y in range(rows)
                    for x in range(columns)
                ]
        return (*found, self._item(self.values.resize(picture, side, side), 0, 0))

    def _item(self, square: PixelArray, row: int, column: int) -> EncoderItem:
        return encoder_item(self.values.of(square), modality="image", grid=(1, row, column))

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """So that the longer side is as long as it may be, and the shorter one even."""
        return (height, width) if self.longest is None else even_sides(height, width, self.longest)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of squares that cover so many pixels, in about their shape."""
        side, ratio = self.side, width / height
        if width >= height:
            columns = -(-width // side)
            return -(-int(columns * side / ratio) // side), columns
        rows = -(-height // side)
        return rows, -(-int(rows * side * ratio) // side)
