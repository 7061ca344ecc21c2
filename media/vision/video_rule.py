"""The part of a `PixelRule` that is of videos and live frames, for rules whose numbers are a `VideoConfig`.

What each method means is in `media/vision/video.py` and `live_frames.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...protocols.engine.messages import EncoderItem, MediaItems
from . import live_frames, video
from .config import VideoConfig
from .images import PixelArray
from .live_frames import PreparedFrame
from .video_container import VideoLimits


class VideoRule:
    """Videos and live frames, as `videos` says."""

    __slots__ = ()

    @property
    def videos(self) -> VideoConfig:
        """How videos are looked at."""
        raise NotImplementedError

    @property
    def video_fps(self) -> float | None:
        """See `PixelRule`."""
        return self.videos.fps

    def measure_video(self, data: bytes, *, limits: VideoLimits) -> int:
        """See `PixelRule`."""
        return video.measure_video(data, self.videos, limits)

    def video_bytes(self, num_frames: int, height: int, width: int) -> int:
        """See `PixelRule`."""
        return video.video_bytes(num_frames, height, width, self.videos)

    def prepare_video(self, data: bytes, *, limits: VideoLimits) -> MediaItems:
        """See `PixelRule`."""
        return video.prepare_video(data, self.videos, limits)

    def prepare_frames(self, frames: Sequence[PixelArray], times_s: Sequence[float]) -> MediaItems:
        """See `PixelRule`."""
        return video.prepare_frames(frames, times_s, self.videos)

    def open_frame(self, data: bytes, *, num_frames: int) -> PreparedFrame:
        """All frames of a session get the size of those of a clip of `num_frames`."""
        return live_frames.open_frame(data, self.videos, num_frames=num_frames)

    def pair_bytes(self, height: int, width: int) -> int:
        """See `PixelRule`."""
        pixels = self.videos.pixels
        return pixels.temporal_patch_size * height * width * pixels.bytes_per_pixel

    def pair(self, frames: Sequence[PixelArray]) -> EncoderItem:
        """See `PixelRule`."""
        return video.frames_item(frames, self.videos)
