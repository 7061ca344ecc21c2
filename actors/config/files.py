"""Bounds on uploaded files and on media in prompts: one of the value objects of `actors/config/server.py`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from ...engine.models.memory import MemorySize
from ...media.vision.config import Background
from ...protocols.shared.audio_format import INTERNAL_RATE
from ..errors import ConfigError
from .validation import MIB, check, check_bytes

_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}")
SAMPLE_BYTES_PER_S: Final = 4 * INTERNAL_RATE
"""Of decoded audio."""


@dataclass(frozen=True, slots=True)
class FileConfig:
    """Bounds on uploaded files and on media in prompts.

    Attributes
    ----------
    max_upload_mib
        Largest upload, in MiB.
    max_audio_s
        Longest audio a file may decode to, in seconds.
    media_memory
        Memory that decoded audio, images and videos of all requests may take together, as 2GiB (1 h of audio
        is 230 MB, an image of 2 megapixels 48 MB). One request gets at most half; those that find too little
        left for some seconds are answered 503.
    media_cache
        Memory for decoded images, videos and audio of prompts, as 1GiB: a file that is sent again is not
        decoded again. 0 keeps nothing.
    max_image_pixels
        Larger images and video frames are scaled down to this size before they are encoded; 0 leaves that to
        the model.
    rgba_background
        Background colour of transparent images, as #ffffff.
    max_media_items
        Images, videos and audio clips in one prompt.
    max_clip_s
        Longest video or audio clip in a prompt, in seconds.
    enable_mm_embeds
        Accept precomputed encodings in place of images and audio (`image_embeds`, `audio_embeds`).
    decode_workers
        Files decoded at the same time, each in its own process; one more for a caller that has none running
        and waits for a second.
    decode_timeout_s
        Seconds one file may take to decode before its process is killed.
    max_requests
        Requests with files or bodies over 1 MiB at a time; more are answered 503.
    """

    max_upload_mib: float = 25.0
    max_audio_s: float = 2 * 3600.0
    media_memory: str = "2GiB"
    media_cache: str = "1GiB"
    max_image_pixels: int = 2**21
    rgba_background: str = "#ffffff"
    max_media_items: int = 64
    max_clip_s: float = 3600.0
    enable_mm_embeds: bool = False
    decode_workers: int = 2
    decode_timeout_s: float = 60.0
    max_requests: int = 64

    def __post_init__(self) -> None:
        check("max_upload_mib", self.max_upload_mib, 0.001)
        check("max_audio_s", self.max_audio_s, 0.1)
        check_bytes("media_memory", self.media_memory)
        if self.media_cache != "0":
            check_bytes("media_cache", self.media_cache)
        least_mib = math.ceil(2 * SAMPLE_BYTES_PER_S * self.max_audio_s / MIB)
        if self.media_bytes < least_mib * MIB:
            raise ConfigError(
                f"--media-memory is {self.media_memory!r}; allowed: at least {least_mib}MiB, of which one "
                f"file of --max-audio-s {self.max_audio_s:g} takes half"
            )
        if self.max_image_pixels:
            check("max_image_pixels", self.max_image_pixels, 2**16)
        if not _COLOUR.fullmatch(self.rgba_background):
            raise ConfigError(
                f"--rgba-background is {self.rgba_background!r}; allowed: a colour as #ffffff, two "
                "hexadecimal digits each of red, green and blue"
            )
        check("max_media_items", self.max_media_items, 1)
        check("max_clip_s", self.max_clip_s, 0.1)
        check("decode_workers", self.decode_workers, 1, 256)
        check("decode_timeout_s", self.decode_timeout_s, 0.1)
        check("max_requests", self.max_requests, 1)

    @property
    def media_bytes(self) -> int:
        """`media_memory` in bytes."""
        return MemorySize.parse(self.media_memory).of(0)

    @property
    def background(self) -> Background:
        """`rgba_background` as red, green and blue."""
        red, green, blue = bytes.fromhex(self.rgba_background[1:])
        return red, green, blue

    @property
    def media_cache_bytes(self) -> int:
        """`media_cache` in bytes."""
        return MemorySize.parse(self.media_cache).of(0)

    @property
    def max_upload_bytes(self) -> int:
        """Largest upload in bytes."""
        return int(self.max_upload_mib * MIB)
