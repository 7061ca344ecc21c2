"""Which video files are opened, and how: by the one demuxer of their first bytes, with known decoders only.

Nothing is probed. Who reads the pictures is `media/vision/video_file.py`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import av

from ...protocols.errors import MediaError, TooLargeError
from ..audio.containers import opened, sniff

DEMUXERS: Final = {
    "mp4": "mov",
    "matroska": "matroska",
    "ogg": "ogg",
    "mpeg": "mpeg",
    "asf": "asf",
    "gif": "gif",
    "avi": "avi",
    "mpegts": "mpegts",
    "flv": "flv",
}
"""libavformat's name of the one demuxer for each container of `sniff_video`."""
SUPPORTED: Final = "MP4, MOV, WebM, Matroska, AVI, GIF, animated WebP, OGG, MPEG, MPEG-TS, FLV and ASF"
DECODERS: Final = frozenset(
    {
        *("h264", "hevc", "av1", "libdav1d", "vp8", "vp9", "libvpx", "libvpx-vp9", "mpeg4", "h263"),
        *("mpeg1video", "mpeg2video", "mjpeg", "theora", "gif", "png", "rawvideo", "wmv2", "vc1"),
        *("flv", "vp6f"),
    }
)
"""libavcodec decoders that may be opened."""
_PADDING_PIXELS: Final = 1 << 18
"""libav counts the padding of its buffers too; the exact limit is checked on each frame."""


@dataclass(frozen=True, slots=True)
class VideoLimits:
    """What one file may cost, whatever its header says. `max_pixels` bounds one decoded frame."""

    max_bytes: int = 200 * 1024 * 1024
    max_seconds: float = 3600.0
    max_frames: int = 250_000
    """Frames in the file, looked at or not."""
    max_pixels: int = 4096 * 4096


def sniff_video(data: bytes) -> str | None:
    """The container `data` starts with, a key of `DEMUXERS`, or None."""
    if data[:6] in {b"GIF87a", b"GIF89a"}:
        return "gif"
    container = sniff(data)
    return container if container in DEMUXERS else None


@contextmanager
def open_video(
    data: bytes, limits: VideoLimits
) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
    """The file's first picture stream; libav's errors become MediaError, its text is not shown."""
    if not data:
        raise fault("The video file is empty.")
    if len(data) > limits.max_bytes:
        raise too_large(f"The video has {len(data)} bytes; the limit is {limits.max_bytes} bytes.")
    container = sniff_video(data)
    if container is None:
        raise fault(f"The file is not in a supported video format ({SUPPORTED}).")
    try:
        with opened(io.BytesIO(data), DEMUXERS[container], DECODERS) as file:
            if not file.streams.video:
                raise fault("The file has no video track.")
            stream = file.streams.video[0]
            context = stream.codec_context
            if context is None or context.codec.name not in DECODERS:
                raise fault("The file's video codec is not supported.")
            check_picture(context.width, context.height, limits)
            context.options = {"max_pixels": str(2 * limits.max_pixels + _PADDING_PIXELS)}
            context.thread_count = 1  # a worker has one core, and its memory is limited
            yield file, stream
    except (av.FFmpegError, ValueError) as error:
        raise fault("The video could not be decoded.") from error


def fault(message: str) -> MediaError:
    """What is wrong with a file."""
    return MediaError(message, param="video")


def too_large(message: str) -> TooLargeError:
    """What a file has too much of."""
    return TooLargeError(message, param="video")


def check_length(seconds: float, limits: VideoLimits) -> None:
    """Raise TooLargeError for a clip that is too long."""
    if seconds > limits.max_seconds:
        raise too_large(
            f"The video lasts {seconds:.1f} seconds; the limit is {limits.max_seconds:g} seconds."
        )


def check_picture(width: int, height: int, limits: VideoLimits) -> None:
    """Raise TooLargeError for pictures that are too large, MediaError for those without a size."""
    if not width * height:
        raise fault("The video holds no picture that has a size.")
    if width * height > limits.max_pixels:
        raise too_large(
            f"The video's pictures are {width} x {height} pixels; the limit is {limits.max_pixels} pixels."
        )
