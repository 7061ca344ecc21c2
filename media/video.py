"""A video file, or frames, → temporal patches with times, as Qwen3-VL's processors make them.

A file is read twice: its packets are counted without decoding, which says which frames to look at; then it is
decoded, and only those frames are converted and resized at once, so that no more than the resized frames are
in memory. If fewer frames decode than were counted (invisible or damaged ones), the choice is made anew from
what there is. Limits hold while decoding; headers are not believed. Read next: `media/images.py`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import av
import numpy as np

from ..protocols.errors import MediaError, TooLargeError
from ..protocols.messages import VideoItems
from .containers import sniff
from .images import PixelArray, check_ratio, patch_item, resize
from .vision_config import PixelConfig, VideoConfig

DEMUXERS: Final = {
    "mp4": "mov",
    "matroska": "matroska",
    "ogg": "ogg",
    "mpeg": "mpeg",
    "asf": "asf",
    "gif": "gif",
    "avi": "avi",
}
"""libavformat's name of the one demuxer for each container of `sniff_video`."""
SUPPORTED: Final = "MP4, MOV, WebM, Matroska, AVI, GIF, OGG, MPEG and ASF"
DECODERS: Final = frozenset(
    {
        *("h264", "hevc", "av1", "libdav1d", "vp8", "vp9", "libvpx", "libvpx-vp9", "mpeg4", "h263"),
        *("mpeg1video", "mpeg2video", "mjpeg", "theora", "gif", "png", "rawvideo", "wmv2", "vc1"),
    }
)
"""libavcodec decoders that may be opened."""
DEFAULT_FPS: Final = 24.0
"""The rate assumed where a file states none, as in the reference."""
_MAX_BAD_PACKETS: Final = 1000
"""Consecutive packets that do not decode before a damaged file is given up."""
_MAX_STREAMS: Final = 64
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
    if data[:4] == b"RIFF" and data[8:12] == b"AVI ":
        return "avi"
    container = sniff(data)
    return container if container in DEMUXERS else None


def prepare_video(data: bytes, config: VideoConfig, limits: VideoLimits | None = None) -> VideoItems:
    """Look at a video file's frames as `config` says.

    Raises TooLargeError or MediaError (param `video`) with a message that says what and how much.
    """
    limits = limits or VideoLimits()
    num_frames, fps = _count_frames(data, limits)
    while True:
        _check_length(num_frames, fps, limits)
        indices = sample_indices(num_frames, fps, config)
        frames, num_decoded = _decode_frames(data, indices, config, limits)
        if len(frames) == len(indices):
            return _patches(frames, [index / fps for index in indices], config)
        if not num_decoded:
            raise _fault("The video holds no picture that can be decoded.")
        num_frames = num_decoded  # fewer than before, so this ends


def measure_video(data: bytes, config: VideoConfig, limits: VideoLimits | None = None) -> int:
    """Bytes of the features `prepare_video` will make, from packets and headers. Raises as it does."""
    limits = limits or VideoLimits()
    num_frames, fps = _count_frames(data, limits)
    with _opened(data, limits) as (_, stream):
        height, width = stream.codec_context.height, stream.codec_context.width
    return video_bytes(len(sample_indices(num_frames, fps, config)), height, width, config)


def video_bytes(num_frames: int, height: int, width: int, config: VideoConfig) -> int:
    """Bytes of the features of so many chosen frames of this size."""
    height, width = target_size(num_frames, height, width, config)
    whole = -(-num_frames // config.pixels.temporal_patch_size) * config.pixels.temporal_patch_size
    return whole * height * width * config.pixels.bytes_per_pixel


def prepare_frames(frames: Sequence[PixelArray], times_s: Sequence[float], config: VideoConfig) -> VideoItems:
    """Frames already chosen, uint8 [height, width, 3] with their times → temporal patches.

    All frames get the first one's new size. Raises MediaError (param `video`).
    """
    if not frames or len(frames) != len(times_s):
        raise _fault(f"{len(frames)} frames with {len(times_s)} times are no video.")
    height, width, _ = frames[0].shape
    height, width = target_size(len(frames), height, width, config)
    return _patches([resize(frame, height, width, config.pixels) for frame in frames], times_s, config)


def _patches(frames: Sequence[PixelArray], times_s: Sequence[float], config: VideoConfig) -> VideoItems:
    depth = config.pixels.temporal_patch_size
    items = tuple(
        patch_item(frames[first : first + depth], config.pixels, "video")
        for first in range(0, len(frames), depth)
    )
    return VideoItems(items, patch_times(times_s, depth))


def sample_indices(num_frames: int, fps: float, config: VideoConfig) -> list[int]:
    """Which of `num_frames` frames are looked at: evenly spread from first to last, in order."""
    wanted = config.num_frames
    if wanted is None and config.fps is not None:
        wanted = int(num_frames / fps * config.fps)
        wanted = min(max(wanted, config.min_frames), config.max_frames, num_frames)
    elif wanted is None:
        wanted = min(max(num_frames, config.min_frames), config.max_frames)
    # A request may ask for more frames than there are; each is looked at once.
    indices = np.linspace(0, num_frames - 1, min(wanted, num_frames)).round().astype(int)
    return [int(index) for index in indices]


def target_size(num_frames: int, height: int, width: int, config: VideoConfig) -> tuple[int, int]:
    """(height, width) of every frame, so that the area of all together is within the bounds."""
    pixels = config.pixels
    if not pixels.do_resize:
        return height, width
    max_pixels = pixels.max_pixels
    # A single frame is shown twice.
    num_frames = max(num_frames, pixels.temporal_patch_size)
    if config.cap_pixels_per_frame:
        largest = min(config.max_video_tokens * pixels.factor**2, max_pixels // num_frames)
        max_pixels = max(largest, int(pixels.min_pixels * 1.05)) * num_frames
    if config.max_frame_pixels is not None:
        max_pixels = min(max_pixels, config.max_frame_pixels * num_frames)
    return _fit(num_frames, height, width, pixels, max_pixels)


def _fit(num_frames: int, height: int, width: int, pixels: PixelConfig, most: int) -> tuple[int, int]:
    factor, depth = pixels.factor, pixels.temporal_patch_size
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    check_ratio(height, width, "video")
    new_height, new_width = (round(side / factor) * factor for side in (height, width))
    volume = round(num_frames / depth) * depth * new_height * new_width
    if volume > most:
        shrink = math.sqrt(num_frames * height * width / most)
        new_height = max(factor, math.floor(height / shrink / factor) * factor)
        new_width = max(factor, math.floor(width / shrink / factor) * factor)
    elif volume < pixels.min_pixels:
        grow = math.sqrt(pixels.min_pixels / (num_frames * height * width))
        new_height = math.ceil(height * grow / factor) * factor
        new_width = math.ceil(width * grow / factor) * factor
    return new_height, new_width


def patch_times(times_s: Sequence[float], depth: int) -> tuple[float, ...]:
    """The time of each temporal patch: the mean of its first and last frame's; the last frame repeats."""
    times = [*times_s, *[times_s[-1]] * (-len(times_s) % depth)]
    return tuple((times[first] + times[first + depth - 1]) / 2 for first in range(0, len(times), depth))


def _fault(message: str) -> MediaError:
    return MediaError(message, param="video")


def _too_large(message: str) -> TooLargeError:
    return TooLargeError(message, param="video")


def _check_length(num_frames: int, fps: float, limits: VideoLimits) -> None:
    if num_frames / fps > limits.max_seconds:
        raise _too_large(
            f"The video lasts {num_frames / fps:.1f} seconds; the limit is {limits.max_seconds:g} seconds."
        )


def _check_picture(width: int, height: int, limits: VideoLimits) -> None:
    if width * height > limits.max_pixels:
        raise _too_large(
            f"The video's pictures are {width} x {height} pixels; the limit is {limits.max_pixels} pixels."
        )


@contextmanager
def _opened(data: bytes, limits: VideoLimits) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
    """The file's first picture stream; libav's errors become MediaError, its text is not shown."""
    if not data:
        raise _fault("The video file is empty.")
    if len(data) > limits.max_bytes:
        raise _too_large(f"The video has {len(data)} bytes; the limit is {limits.max_bytes} bytes.")
    container = sniff_video(data)
    if container is None:
        raise _fault(f"The file is not in a supported video format ({SUPPORTED}).")
    options = {
        "format_whitelist": DEMUXERS[container],
        "codec_whitelist": ",".join(sorted(DECODERS)),
        "protocol_whitelist": "none",
        "max_streams": str(_MAX_STREAMS),
    }
    try:
        with av.open(
            io.BytesIO(data),
            "r",
            format=DEMUXERS[container],
            container_options=options,
            metadata_errors="ignore",
        ) as file:
            if not file.streams.video:
                raise _fault("The file has no video track.")
            stream = file.streams.video[0]
            context = stream.codec_context
            if context is None or context.codec.name not in DECODERS:
                raise _fault("The file's video codec is not supported.")
            _check_picture(context.width, context.height, limits)
            context.options = {"max_pixels": str(2 * limits.max_pixels + _PADDING_PIXELS)}
            context.thread_count = 1  # a worker has one core, and its memory is limited
            for other in file.streams:
                if other.index != stream.index:
                    other.discard = av.stream.Discard.all
            yield file, stream
    except (av.FFmpegError, ValueError) as error:
        raise _fault("The video could not be decoded.") from error


def _count_frames(data: bytes, limits: VideoLimits) -> tuple[int, float]:
    """Packets of the video track, and the frames per second it states."""
    with _opened(data, limits) as (file, stream):
        fps = float(stream.average_rate or 0)
        fps = fps if fps > 0 else DEFAULT_FPS
        count = 0
        try:
            for packet in file.demux(stream):
                count += packet.size > 0
                if count > limits.max_frames:
                    raise _too_large(f"The video has more than the limit of {limits.max_frames} frames.")
                _check_length(count, fps, limits)
        except av.FFmpegError:
            pass  # a file that is cut off has the frames before the cut
    if not count:
        raise _fault("The video holds no pictures.")
    return count, fps


def _decode_frames(
    data: bytes, indices: Sequence[int], config: VideoConfig, limits: VideoLimits
) -> tuple[list[PixelArray], int]:
    """The frames at `indices`, resized, as far as they decode, and how many were decoded on the way."""
    chosen, kept, count = set(indices), [], 0
    size: tuple[int, int] | None = None
    with _opened(data, limits) as (file, stream):
        for frame in _frames(file, stream):
            _check_picture(frame.width, frame.height, limits)
            if count in chosen:
                picture = _upright(frame)
                if size is None:
                    size = target_size(len(indices), picture.shape[0], picture.shape[1], config)
                kept.append(resize(picture, *size, config.pixels))
            count += 1
            if count > indices[-1]:
                break
    return kept, count


def _frames(file: av.container.InputContainer, stream: av.VideoStream) -> Iterator[av.VideoFrame]:
    """Decode until the end; damaged packets are skipped, as players do."""
    num_bad = 0
    packets = file.demux(stream)
    while True:
        try:
            frames = next(packets).decode()
        except StopIteration:
            return
        except av.FFmpegError:
            num_bad += 1
            if num_bad > _MAX_BAD_PACKETS:
                return
            continue
        num_bad = 0
        yield from frames


_TURNS: Final[dict[int, Callable[[PixelArray], PixelArray]]] = {
    90: lambda picture: np.rot90(picture, 1),
    180: lambda picture: np.rot90(picture, 2),
    270: lambda picture: np.rot90(picture, 3),
}
"""Counterclockwise, as libav gives the angle a picture is to be turned by."""


def _upright(frame: av.VideoFrame) -> PixelArray:
    picture: PixelArray = frame.to_ndarray(format="rgb24")
    turn = _TURNS.get(round(frame.rotation) % 360)
    return picture if turn is None else np.ascontiguousarray(turn(picture))
