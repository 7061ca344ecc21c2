"""Who opens the files of a request: `MediaOpener`. A server's is the media actor (`actors/media.py`), whose
processes can be killed; `ThreadOpener` is for files one trusts.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import trio

from ...media.decode import DecodedAudio, DecodeLimits, decode_audio, measure_audio
from ...media.frames import SeenFrame, look_at_frame
from ...media.images import ImageLimits, measure_image, prepare_image
from ...media.video import measure_video, prepare_video
from ...media.video_container import VideoLimits
from ...media.vision_config import PixelConfig, VideoConfig
from ...protocols.messages import MediaItems


class MediaOpener(Protocol):
    """Measures and opens files. Raises MediaError, TooLargeError, OverloadedError or UnavailableError."""

    def of(self, caller: str) -> MediaOpener:
        """What opens the files of one caller (`Lane.caller`)."""

    async def measure_image(self, data: bytes, config: PixelConfig, limits: ImageLimits | None = None) -> int:
        """Bytes of the features an image will make, by its header."""

    async def measure_video(self, data: bytes, config: VideoConfig, limits: VideoLimits | None = None) -> int:
        """Bytes of the features a video will make, by its headers."""

    async def measure_audio(self, data: bytes, *, limits: DecodeLimits | None = None) -> float:
        """Seconds an audio file will decode to, by its headers."""

    async def prepare_image(
        self, data: bytes, config: PixelConfig, limits: ImageLimits | None = None
    ) -> MediaItems:
        """An image's features."""

    async def prepare_video(
        self, data: bytes, config: VideoConfig, limits: VideoLimits | None = None
    ) -> MediaItems:
        """A video's features."""

    async def decode(self, data: bytes, *, limits: DecodeLimits | None = None) -> DecodedAudio:
        """An audio file's samples at 16 kHz."""

    async def look_at_frame(
        self, data: bytes, config: VideoConfig, *, num_frames: int, limits: ImageLimits | None = None
    ) -> SeenFrame:
        """One frame of live video, of `num_frames`."""


class ThreadOpener:
    """Opens files in threads of this process: for files one trusts."""

    def of(self, caller: str) -> ThreadOpener:  # noqa: ARG002 (all are one's own)
        """See `MediaOpener`."""
        return self

    async def measure_image(self, data: bytes, config: PixelConfig, limits: ImageLimits | None = None) -> int:
        """See `MediaOpener`."""
        return await trio.to_thread.run_sync(measure_image, data, config, limits)

    async def measure_video(self, data: bytes, config: VideoConfig, limits: VideoLimits | None = None) -> int:
        """See `MediaOpener`."""
        return await trio.to_thread.run_sync(measure_video, data, config, limits)

    async def measure_audio(self, data: bytes, *, limits: DecodeLimits | None = None) -> float:
        """See `MediaOpener`."""
        return await trio.to_thread.run_sync(partial(measure_audio, data, limits=limits))

    async def prepare_image(
        self, data: bytes, config: PixelConfig, limits: ImageLimits | None = None
    ) -> MediaItems:
        """See `MediaOpener`."""
        return await trio.to_thread.run_sync(prepare_image, data, config, limits)

    async def prepare_video(
        self, data: bytes, config: VideoConfig, limits: VideoLimits | None = None
    ) -> MediaItems:
        """See `MediaOpener`."""
        return await trio.to_thread.run_sync(prepare_video, data, config, limits)

    async def decode(self, data: bytes, *, limits: DecodeLimits | None = None) -> DecodedAudio:
        """See `MediaOpener`."""
        return await trio.to_thread.run_sync(partial(decode_audio, data, limits=limits))

    async def look_at_frame(
        self, data: bytes, config: VideoConfig, *, num_frames: int, limits: ImageLimits | None = None
    ) -> SeenFrame:
        """See `MediaOpener`."""
        look = partial(look_at_frame, data, config, num_frames=num_frames, limits=limits)
        return await trio.to_thread.run_sync(look)
