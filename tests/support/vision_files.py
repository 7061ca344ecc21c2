"""Makes images and videos in memory, in the formats the decoders are tested with; nothing is kept."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from PIL import Image
from sensorium.media.vision.config import PixelConfig

PixelArray = npt.NDArray[np.uint8]


def pixel_config(least: int, most: int, *, patch_size: int, do_resize: bool = True) -> PixelConfig:
    """As Qwen3-VL's, of pictures of so many pixels."""
    return PixelConfig(
        min_pixels=least,
        max_pixels=most,
        patch_size=patch_size,
        merge_size=2,
        temporal_patch_size=2,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        do_resize=do_resize,
    )


def picture(height: int, width: int, seed: int = 0) -> PixelArray:
    """Smooth colours with some noise, uint8 [height, width, 3]: neither flat nor pure noise."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    phases = generator.uniform(0, 6, 3)
    waves = [np.sin(x / (5 + 3 * c) + phase) * np.cos(y / (7 - 2 * c)) for c, phase in enumerate(phases)]
    noise = generator.normal(0, 12, (height, width, 3))
    return np.clip(np.stack(waves, -1) * 90 + 128 + noise, 0, 255).astype(np.uint8)


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:  # noqa: ANN401 (Pillow's)
    """A Pillow image as a file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png(height: int, width: int, seed: int = 0) -> bytes:
    """`picture` as a PNG file."""
    return saved(Image.fromarray(picture(height, width, seed)))


def grey_steps(num_frames: int, height: int = 48, width: int = 64) -> list[PixelArray]:
    """Frames that can be told apart after any codec: frame i is grey, of 4·i."""
    return [np.full((height, width, 3), 4 * index % 256, np.uint8) for index in range(num_frames)]


def movie(
    frames: Sequence[PixelArray],
    *,
    container: str = "mp4",
    codec: str = "mpeg4",
    fps: Fraction | int = 10,
    pixel_format: str = "yuv420p",
    options: dict[str, str] | None = None,
) -> bytes:
    """Frames of one size as a file; `container` and `codec` are libav's names."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as file:
        stream = file.add_stream(codec, rate=fps, options=options or {})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = pixel_format
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        file.mux(stream.encode(None))
    return buffer.getvalue()


def uneven(stamps_ms: Sequence[int]) -> bytes:
    """Frame i of grey 4·i at its stamp."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as file:
        stream = file.add_stream("libx264", rate=1000, options={"bf": "0"})
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        for stamp, picture in zip(stamps_ms, grey_steps(len(stamps_ms)), strict=True):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = stamp, Fraction(1, 1000)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return buffer.getvalue()


def without(data: bytes, first: int, last: int) -> bytes:
    """Frames `first` to `last` have no content any more."""
    broken = bytearray(data)
    with av.open(io.BytesIO(data)) as file:
        packets = [packet for packet in file.demux(video=0) if packet.size]
        stamps = sorted(packet.pts for packet in packets if packet.pts is not None)
        for packet in packets:
            if (
                packet.pts is not None
                and packet.pos is not None
                and first <= stamps.index(packet.pts) <= last
            ):
                broken[packet.pos + 4 : packet.pos + packet.size] = bytes(packet.size - 4)
    return bytes(broken)
