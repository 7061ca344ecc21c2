"""Pictures as patches of which squares become one token, videos as pairs of frames: Qwen-VL's rule.

A `PixelRule` over the functions of `media/vision/images.py`, `video.py` and `live_frames.py`, which say what
each means; its numbers are those of `media/vision/config.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...protocols.chat.processor_options import ProcessorOptions
from ...protocols.engine.messages import EncoderItem, MediaItems
from . import images, live_frames, processor_options, video
from .config import Background, VisionConfig, read_vision_config
from .images import PixelArray
from .live_frames import PreparedFrame
from .video_container import VideoLimits


def open_rule(folder: Path) -> MergedPatches:
    """See `pixel_rule.open_rule`."""
    return MergedPatches(read_vision_config(folder))


@dataclass(frozen=True, slots=True)
class MergedPatches:
    """See `PixelRule`."""

    config: VisionConfig

    @property
    def max_item_pixels(self) -> int:
        """An image's, or those of the frame of a video."""
        return self.config.max_item_pixels

    @property
    def video_fps(self) -> float | None:
        """See `PixelRule`."""
        return self.config.video.fps

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

    def measure_video(self, data: bytes, *, limits: VideoLimits) -> int:
        """See `PixelRule`."""
        return video.measure_video(data, self.config.video, limits)

    def video_bytes(self, num_frames: int, height: int, width: int) -> int:
        """See `PixelRule`."""
        return video.video_bytes(num_frames, height, width, self.config.video)

    def prepare_video(self, data: bytes, *, limits: VideoLimits) -> MediaItems:
        """See `PixelRule`."""
        return video.prepare_video(data, self.config.video, limits)

    def prepare_frames(self, frames: Sequence[PixelArray], times_s: Sequence[float]) -> MediaItems:
        """See `PixelRule`."""
        return video.prepare_frames(frames, times_s, self.config.video)

    def open_frame(self, data: bytes, *, num_frames: int) -> PreparedFrame:
        """All frames of a session get the size of those of a clip of `num_frames`."""
        return live_frames.open_frame(data, self.config.video, num_frames=num_frames)

    def pair_bytes(self, height: int, width: int) -> int:
        """See `PixelRule`."""
        pixels = self.config.video.pixels
        return pixels.temporal_patch_size * height * width * pixels.bytes_per_pixel

    def pair(self, frames: Sequence[PixelArray]) -> EncoderItem:
        """See `PixelRule`."""
        return images.patch_item(frames, self.config.video.pixels, "video")
