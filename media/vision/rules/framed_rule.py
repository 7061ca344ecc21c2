"""What rules share whose videos are frames of one size, each as a picture is: InternVL, LLaVA-OneVision.

Frames are chosen as those of other models are (`media/vision/video.py`), by a number rather than a rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from ....protocols.chat.processor_options import NO_PROCESSOR_OPTIONS, ProcessorOptions
from ..config import Background, PixelConfig, ProcessorFields, VideoConfig, VisionConfig, read_video
from ..processor_options import vision_with_options
from ..video_rule import VideoRule
from .still_rule import StillRule, Values, refuse_options

_MAX_FRAMES: Final = 256
_OPTIONS: Final = ("fps", "num_frames", "min_frames", "max_frames")


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedRule(VideoRule, StillRule):
    """A `PixelRule` of images and videos; what differs is what becomes of one picture."""

    videos: VideoConfig

    @property
    def option_keys(self) -> Sequence[str]:
        """See `PixelRule`: those of frames."""
        return (*_OPTIONS, "do_sample_frames", "videos_kwargs")

    def on(self, background: Background) -> Self:
        """See `PixelRule`."""
        pixels = replace(self.videos.pixels, background=background)
        return replace(self, background=background, videos=replace(self.videos, pixels=pixels))

    def with_options(self, options: ProcessorOptions) -> Self:
        """See `PixelRule`: which frames of a video are looked at."""
        refuse_options(options.image, self.option_keys)
        refuse_options(options.video, self.option_keys, _OPTIONS)
        if options == NO_PROCESSOR_OPTIONS:
            return self
        both = VisionConfig(image=self.videos.pixels, video=self.videos)
        return replace(self, videos=vision_with_options(both, options).video)


def read_frames(
    folder: Path, height: int, width: int, values: Values, *, num_frames: int, together: int = 1
) -> VideoConfig:
    """Of a folder's video processor: its values, or those of pictures. `num_frames` are looked at unless it
    names a number or a rate, and so many `together` are an item."""
    path = folder / "video_preprocessor_config.json"
    fields = ProcessorFields.optional(folder, "video_processor", path.name)
    values = values if fields.is_empty else Values.read(fields, values.mean, values.std, values.resample)
    pixels = PixelConfig(
        min_pixels=1,
        max_pixels=height * width,
        patch_size=1,
        merge_size=1,
        temporal_patch_size=together,
        mean=values.mean,
        std=values.std,
        rescale_factor=values.factor,
        resample=values.resample,
        do_rescale=values.do_rescale,
        do_normalize=values.do_normalize,
    )
    found = read_video(fields, pixels, num_frames=num_frames, min_frames=1, max_frames=_MAX_FRAMES)
    return replace(found, frame_size=(height, width), bounds_frames=True)
