"""What a file will come to is known before it is decoded, and to the byte where its header does not lie."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image
from sensorium.media.audio.decode import DecodeLimits, measure_audio
from sensorium.media.vision.config import VideoConfig, VisionConfig
from sensorium.media.vision.images import ImageLimits, measure_image, prepare_image
from sensorium.media.vision.video import measure_video, prepare_video
from sensorium.protocols.errors import MediaError, TooLargeError
from support.audio_files import encoded, plain_wav, tone
from support.vision_files import grey_steps, movie, pixel_config, png

PIXELS = pixel_config(1024, 8192, patch_size=8)
VISION = VisionConfig(image=PIXELS, video=VideoConfig(pixels=PIXELS))


@pytest.mark.parametrize("max_pixels", [None, 2048])
@pytest.mark.parametrize("size", [(16, 16), (40, 300), (333, 90)])
def test_images(size: tuple[int, int], max_pixels: int | None) -> None:
    config, data = VISION.bounded(max_pixels).image, png(*size)
    (item,) = prepare_image(data, config).items
    assert measure_image(data, config) == len(item.features.data)
    assert item.features.shape[0] * PIXELS.patch_size**2 <= (max_pixels or PIXELS.max_pixels)


def test_an_image_is_measured_by_its_header_alone() -> None:
    buffer = io.BytesIO()
    Image.new("L", (4000, 4000)).save(buffer, "PNG")
    assert measure_image(buffer.getvalue()[:2000], PIXELS) > 0
    with pytest.raises(TooLargeError, match="limit is 1000000 pixels"):
        measure_image(buffer.getvalue(), PIXELS, ImageLimits(max_pixels=1_000_000))
    with pytest.raises(MediaError):
        measure_image(b"nothing", PIXELS)


@pytest.mark.parametrize("max_pixels", [None, 1024])
@pytest.mark.parametrize("num_frames", [1, 5, 20])
def test_videos(num_frames: int, max_pixels: int | None) -> None:
    config, data = VISION.bounded(max_pixels), movie(grey_steps(num_frames))
    items = prepare_video(data, config.video).items
    assert measure_video(data, config.video) == sum(len(item.features.data) for item in items)
    assert max(item.features.shape[0] for item in items) * PIXELS.patch_size**2 <= config.max_item_pixels


@pytest.mark.parametrize(
    "data",
    [
        plain_wav(tone(3.0)),
        encoded(tone(3.0), container="flac", codec="flac"),
        encoded(tone(3.0), container="mp3", codec="libmp3lame"),
        encoded(tone(3.0), container="ogg", codec="libopus"),
    ],
    ids=["wav", "flac", "mp3", "opus"],
)
def test_audio(data: bytes) -> None:
    assert measure_audio(data) == pytest.approx(3.0, abs=0.2)
    assert measure_audio(data, limits=DecodeLimits(max_seconds=1.0)) == 1.0


def test_a_lying_or_damaged_header_is_bounded() -> None:
    data = bytearray(plain_wav(np.zeros(16_000, np.float32)))
    data[40:44] = struct.pack("<I", 0xFFFFFFF0)
    assert 0 <= measure_audio(bytes(data)) <= 3600
    assert measure_audio(b"fLaC" + bytes(100)) == 0.0
    with pytest.raises(MediaError):
        measure_audio(b"nothing")
