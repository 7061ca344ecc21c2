"""Frames of live video: one size for all of a session, and thumbnails that tell them apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from sensorium.engine.models.embedded import embedded_folder
from sensorium.media.vision.config import VideoConfig, read_vision_config
from sensorium.media.vision.images import patch_item, prepare_picture, read_image, resize
from sensorium.media.vision.live_frames import open_frame
from sensorium.media.vision.video import target_size
from sensorium.protocols.errors import MediaError
from support.vision_files import picture, pixel_config, png, saved

CONFIG = VideoConfig(pixels=pixel_config(4096, 64 * 64 * 32, patch_size=4))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_frame_has_the_size_of_a_whole_clips(kind: str) -> None:
    data = saved(Image.fromarray(picture(200, 300)), kind)
    seen = open_frame(data, CONFIG, num_frames=32)
    assert (seen.width, seen.height) == (300, 200)
    size = target_size(32, 200, 300, CONFIG)
    assert seen.pixels.shape == (*size, 3)
    np.testing.assert_array_equal(seen.pixels, resize(read_image(data), *size, CONFIG.pixels))
    longer = replace(CONFIG, max_frame_pixels=1024)
    assert open_frame(data, longer, num_frames=32).pixels.size < seen.pixels.size


def test_thumbnails_tell_frames_apart() -> None:
    same, again, other = (open_frame(png(96, 96, seed), CONFIG, num_frames=2) for seed in (1, 1, 2))
    assert len(same.thumbnail) == 32 * 32
    assert same.thumbnail == again.thumbnail != other.thumbnail


@pytest.mark.parametrize(
    "data", [b"", b"GIF89a", saved(Image.fromarray(picture(48, 48)), "GIF"), png(48, 48)[:300]]
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(MediaError):
        open_frame(data, CONFIG, num_frames=2)


@pytest.mark.parametrize("num_frames", [2, 120, 1200])
@pytest.mark.parametrize(
    "size", [(192, 256), (256, 192), (224, 224), (360, 640), (640, 360), (96, 128), (480, 640), (300, 200)]
)
def test_the_embedded_model_sees_a_frame_as_large_as_a_still(size: tuple[int, int], num_frames: int) -> None:
    """What it was trained on: a smaller frame has things in it that it does not know."""
    folder = embedded_folder("tiny-qwen3-vl")
    assert folder is not None
    vision = read_vision_config(folder)
    (still,) = prepare_picture(picture(*size), vision.image).items
    frame = open_frame(png(*size), vision.video, num_frames=num_frames).pixels
    assert patch_item([frame], vision.video.pixels, "video").features.grid == still.features.grid
