"""Pictures as patches of which squares become one token, videos as pairs of frames: Qwen-VL's rule.

A `PixelRule` over the functions of `media/vision/images.py`, which say what each means; its numbers are those
of `media/vision/config.py`. Read next: `media/vision/video_rule.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...protocols.chat.processor_options import PROCESSOR_KEYS, ProcessorOptions
from ...protocols.engine.messages import MediaItems
from . import images, processor_options
from .config import Background, VideoConfig, VisionConfig, read_vision_config
from .images import PixelArray
from .video_rule import VideoRule


def open_rule(folder: Path) -> MergedPatches:
    """See `pixel_rule.open_rule`."""
    return MergedPatches(read_vision_config(folder))


@dataclass(frozen=True, slots=True)
class MergedPatches(VideoRule):
    """See `PixelRule`."""

    config: VisionConfig

    @property
    def max_item_pixels(self) -> int:
        """An image's, or those of the frame of a video."""
        return self.config.max_item_pixels

    @property
    def option_keys(self) -> Sequence[str]:
        """See `PixelRule`: all."""
        return PROCESSOR_KEYS

    @property
    def videos(self) -> VideoConfig:
        """See `VideoRule`."""
        return self.config.video

    def bounded(self, max_pixels: int | None) -> MergedPatches:
        """See `PixelRule`."""
        return MergedPatches(self.config.bounded(max_pixels))

    def on(self, background: Background) -> MergedPatches:
        """See `PixelRule`."""
        return MergedPatches(self.config.on(background))

    def with_options(self, options: ProcessorOptions) -> MergedPatches:
        """See `PixelRule`."""
        return MergedPatches(processor_options.vision_with_options(self.config, options))

    def low_detail(self) -> MergedPatches:
        """See `PixelRule`."""
        return MergedPatches(processor_options.low_detail(self.config))

    def measure_image(self, data: bytes) -> int:
        """See `PixelRule`."""
        return images.measure_image(data, self.config.image)

    def image_bytes(self, height: int, width: int) -> int:
        """See `PixelRule`."""
        return images.image_bytes(height, width, self.config.image)

    def prepare_image(self, data: bytes) -> MediaItems:
        """See `PixelRule`."""
        return images.prepare_image(data, self.config.image)

    def prepare_picture(self, picture: PixelArray) -> MediaItems:
        """See `PixelRule`."""
        return images.prepare_picture(picture, self.config.image)
