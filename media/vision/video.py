"""A video file, or frames, → temporal patches with times, as Qwen3-VL's processors make them.

A file's pictures are listed with their times before any is decoded (`media/vision/video_file.py`); which are
looked at is said here, and only those are converted and resized at once, so that no more than the resized
ones are in memory. Read next: `media/vision/images.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
import numpy as np

from ...protocols.chat.frame_list import is_frame_list, unpack_frames
from ...protocols.engine.messages import EncoderItem, MediaItems, Replaced
from ...protocols.errors import MediaError, TooLargeError
from ..hashing import encoder_item
from .config import PixelConfig, VideoConfig
from .images import (
    ImageLimits,
    PixelArray,
    check_ratio,
    patch_item,
    picture_size,
    plane_values,
    read_image,
    resize,
    smart_resize,
)
from .video_container import VideoLimits, fault, too_large
from .video_file import DEFAULT_FPS, Pictures, list_pictures, read_pictures

_JPEG: Final = b"\xff\xd8\xff"
_SHARE: Final = 0.9
"""Of the tokens that a model takes, those that a video may have."""


def prepare_video(data: bytes, config: VideoConfig, limits: VideoLimits | None = None) -> MediaItems:
    """Look at a video file's frames as `config` says, each with its own time in the file.

    Raises TooLargeError or MediaError (param `video`) with a message that says what and how much.
    """
    limits = limits or VideoLimits()
    if is_frame_list(data):
        return _prepare_list(data, config, limits)
    pictures = list_pictures(data, limits)
    wanted = sample_pictures(pictures, config)
    size: list[tuple[int, int]] = []

    def keep(picture: PixelArray) -> PixelArray:
        if not size:
            height, width, _ = picture.shape
            size.append(target_size(len(wanted), height, width, config))
        return resize(picture, *size[0], config.pixels)

    found = read_pictures(data, pictures, wanted, limits, keep)
    shown = [each for each in found if each is not None]
    if not shown:
        raise fault("The video holds no picture that can be decoded.")
    times = _times(pictures)
    made = _patches(
        [picture for _, picture in shown],
        [times[place] for place, _ in shown],
        config,
        duration_s=_duration_s(pictures),
    )
    replaced = tuple(
        Replaced(times[place], None if each is None else times[each[0]])
        for place, each in zip(wanted, found, strict=True)
        if each is None or each[0] != place
    )
    return msgspec.structs.replace(made, replaced=replaced) if replaced else made


def measure_video(data: bytes, config: VideoConfig, limits: VideoLimits | None = None) -> int:
    """Bytes of the features `prepare_video` will make, from packets and headers. Raises as it does."""
    if is_frame_list(data):
        frames, _ = _listed(data, config, limits or VideoLimits())
        with _naming_frames([]):
            height, width = picture_size(frames[0])
        return video_bytes(len(frames), height, width, config)
    pictures = list_pictures(data, limits or VideoLimits())
    num_frames = len(sample_pictures(pictures, config))
    return video_bytes(num_frames, pictures.height, pictures.width, config)


def _prepare_list(data: bytes, config: VideoConfig, limits: VideoLimits) -> MediaItems:
    """Of pictures that the client chose; all get the first one's new size."""
    files, fps = _listed(data, config, limits)
    frames: list[PixelArray] = []
    size: tuple[int, int] | None = None
    with _naming_frames(frames):
        for file in files:
            picture = read_image(file, ImageLimits(max_pixels=limits.max_pixels), config.pixels.background)
            size = size or target_size(len(files), picture.shape[0], picture.shape[1], config)
            frames.append(resize(picture, *size, config.pixels))
    times = [place / fps for place in range(len(frames))]
    return _patches(frames, times, config, duration_s=len(frames) / fps)


def _listed(data: bytes, config: VideoConfig, limits: VideoLimits) -> tuple[list[bytes], float]:
    """The files and their rate."""
    if len(data) > limits.max_bytes:
        raise too_large(f"The video has {len(data)} bytes; the limit is {limits.max_bytes} bytes.")
    files, fps = unpack_frames(data)
    fps = fps or config.fps or DEFAULT_FPS
    if len(files) > config.max_frames:
        raise too_large(f"The video has {len(files)} frames; the model takes up to {config.max_frames}.")
    if len(files) / fps > limits.max_seconds:
        raise too_large(f"The video lasts {len(files) / fps:.6g} s; the limit is {limits.max_seconds:g} s.")
    wrong = next((place for place, file in enumerate(files) if not file.startswith(_JPEG)), None)
    if wrong is not None:
        raise fault(f"Frame {wrong} of the video is not a JPEG file.")
    return files, fps


@contextmanager
def _naming_frames(done: Sequence[PixelArray]) -> Iterator[None]:
    try:
        yield
    except (MediaError, TooLargeError) as error:
        raise type(error)(f"Frame {len(done)} of the video: {error.message}", param="video") from None


def sample_pictures(pictures: Pictures, config: VideoConfig) -> list[int]:
    """Which of a file's pictures are looked at: as many as `sample_indices` says, evenly spread over its
    pictures, as in the reference, or over its time where they do not follow each other evenly."""
    indices = sample_indices(len(pictures.stamps), pictures.fps, config)
    if pictures.is_even:
        return indices
    times = np.asarray(pictures.times_s)
    targets = np.linspace(0, times[-1], len(indices))
    after = np.searchsorted(times, targets).clip(1, len(times) - 1)
    nearest = np.where(targets - times[after - 1] <= times[after] - targets, after - 1, after)
    return [int(index) for index in np.unique(nearest)]


def _times(pictures: Pictures) -> Sequence[float]:
    """Since the first; of an even file without the roundings of its container."""
    if not pictures.is_even:
        return pictures.times_s
    return [place / pictures.fps for place in range(len(pictures.stamps))]


def _duration_s(pictures: Pictures) -> float:
    """To the end of the last picture."""
    if pictures.is_even:
        return len(pictures.stamps) / pictures.fps
    return pictures.times_s[-1] + 1 / pictures.fps


def video_bytes(num_frames: int, height: int, width: int, config: VideoConfig) -> int:
    """Bytes of the features of so many chosen frames of this size."""
    height, width = target_size(num_frames, height, width, config)
    depth = config.pixels.temporal_patch_size if config.frame_size is None else 1
    whole = -(-num_frames // depth) * depth
    return whole * height * width * config.pixels.bytes_per_pixel


def prepare_frames(frames: Sequence[PixelArray], times_s: Sequence[float], config: VideoConfig) -> MediaItems:
    """Frames already chosen, uint8 [height, width, 3] with their times → temporal patches.

    All frames get the first one's new size. Raises MediaError (param `video`).
    """
    if not frames or len(frames) != len(times_s):
        raise fault(f"{len(frames)} frames with {len(times_s)} times are not a video.")
    height, width, _ = frames[0].shape
    height, width = target_size(len(frames), height, width, config)
    return _patches([resize(frame, height, width, config.pixels) for frame in frames], times_s, config)


def _patches(
    frames: Sequence[PixelArray],
    times_s: Sequence[float],
    config: VideoConfig,
    duration_s: float | None = None,
) -> MediaItems:
    depth = config.pixels.temporal_patch_size
    items = tuple(
        frames_item(frames[first : first + depth], config) for first in range(0, len(frames), depth)
    )
    return MediaItems(
        "video",
        items,
        patch_times(times_s, depth),
        starts_s=tuple(times_s[::depth]),
        duration_s=duration_s,
    )


def frames_item(frames: Sequence[PixelArray], config: VideoConfig) -> EncoderItem:
    """Frames of one temporal patch, uint8 [height, width, 3] of the size that they are encoded in → one item.
    Raises MediaError (param `video`) if no whole number of tokens covers them."""
    if config.frames is not None:
        return config.frames.item(frames[0], "video")
    if config.frame_size is None:
        return patch_item(frames, config.pixels, "video")
    values = np.stack([plane_values(frame, config.pixels) for frame in frames])
    return encoder_item(values[0] if config.pixels.temporal_patch_size == 1 else values, modality="video")


def sample_indices(num_frames: int, fps: float, config: VideoConfig) -> list[int]:
    """Which of `num_frames` frames are looked at: evenly spread from first to last, in order."""
    if config.skipped_s is not None:
        return _sample_inside(num_frames, fps, config, config.skipped_s)
    wanted = config.num_frames
    if wanted is None and config.fps is not None:
        wanted = int(num_frames / fps * config.fps)
        wanted = min(max(wanted, config.min_frames), config.max_frames, num_frames)
    elif wanted is None:
        wanted = min(max(num_frames, config.min_frames), config.max_frames)
    # A request may ask for more frames than there are; each is looked at once.
    indices = np.linspace(0, num_frames - 1, min(wanted, num_frames)).round().astype(int)
    return [int(index) for index in indices]


def _sample_inside(num_frames: int, fps: float, config: VideoConfig, skipped_s: float) -> list[int]:
    """As `sample_frames` of transformers' SmolVLMVideoProcessor has it."""
    seconds, rate = num_frames / fps, config.fps or 1.0
    most = config.max_frames if config.num_frames is None else config.num_frames
    wanted = max(min(round(rate * seconds), most), 1)
    first, last = 0, num_frames - 1
    if seconds - 2 * skipped_s > most * rate:
        first, last = int(skipped_s * fps), min(int(num_frames - skipped_s * fps), last)
    if first >= last:
        first, last = 0, num_frames - 1
    return [int(index) for index in np.unique(np.linspace(first, last, wanted, dtype=int))]


def target_size(num_frames: int, height: int, width: int, config: VideoConfig) -> tuple[int, int]:
    """(height, width) of every frame, so that the area of all together is within the bounds."""
    pixels = config.pixels
    if config.frame_size is not None:
        check_ratio(height, width, "video")
        return config.frame_size
    if config.frames is not None:
        check_ratio(height, width, "video")
        return config.frames.size(height, width)
    if not pixels.do_resize:
        _check_unresized(num_frames, height, width, config)
        return height, width
    if config.bounds_frames:
        return _fit_frame(num_frames, height, width, config)
    max_pixels = pixels.max_pixels
    # A single frame is shown twice.
    num_frames = max(num_frames, pixels.temporal_patch_size)
    if config.cap_pixels_per_frame:
        largest = min(config.max_video_tokens * pixels.factor**2, max_pixels // num_frames)
        max_pixels = max(largest, int(pixels.min_pixels * 1.05)) * num_frames
    if config.max_frame_pixels is not None:
        max_pixels = min(max_pixels, config.max_frame_pixels * num_frames)
    return _fit(num_frames, height, width, pixels, max_pixels)


def _fit_frame(num_frames: int, height: int, width: int, config: VideoConfig) -> tuple[int, int]:
    """Of one frame, whose bounds the config's are; as Qwen2VLVideoProcessor does it."""
    pixels, factor = config.pixels, config.pixels.factor
    most = pixels.max_pixels
    if config.cap_pixels_per_frame:
        together = int(config.max_video_tokens * factor**2 * _SHARE)
        most = max(
            min(most, together * pixels.temporal_patch_size // num_frames), int(pixels.min_pixels * 1.05)
        )
    if config.max_frame_pixels is not None:
        most = min(most, config.max_frame_pixels)
    check_ratio(height, width, "video")
    least = min(pixels.min_pixels, most)
    return smart_resize(height, width, factor=factor, min_pixels=least, max_pixels=most)


def _check_unresized(num_frames: int, height: int, width: int, config: VideoConfig) -> None:
    area = height * width
    frame, whole = config.max_frame_pixels or config.pixels.max_pixels, config.pixels.max_pixels
    if config.bounds_frames:
        whole *= config.max_frames
    if area > frame or area * num_frames > whole:
        raise too_large(
            f"The video's {num_frames} frames are {width} x {height} pixels; without resizing the limit is "
            f"{frame} pixels of one and {whole} of all."
        )


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
