"""Animated WebP files are clips, as animated GIF is."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from sensorium.media.vision.config import VideoConfig
from sensorium.media.vision.images import PixelArray
from sensorium.media.vision.video import measure_video, prepare_video
from sensorium.media.vision.video_container import VideoLimits
from sensorium.media.vision.video_file import list_pictures, read_pictures
from sensorium.protocols.errors import MediaError, TooLargeError
from support.vision_files import picture, pixel_config

LIMITS = VideoLimits()
CONFIG = VideoConfig(pixels=pixel_config(4096, 48 * 64 * 60, patch_size=4))
FRAMES = [picture(48, 64, seed) for seed in range(8)]


def webp(frames: list[PixelArray], duration: int | list[int] = 100, *, lossless: bool = True) -> bytes:
    buffer = io.BytesIO()
    first, *others = [Image.fromarray(frame) for frame in frames]
    first.save(
        buffer,
        "WEBP",
        save_all=True,
        append_images=others,
        duration=duration,
        lossless=lossless,
        minimize_size=False,
    )
    return buffer.getvalue()


@pytest.mark.parametrize("wanted", [[0, 7], [3], [1, 2, 6], list(range(8))])
def test_each_picture_is_what_was_saved(wanted: list[int]) -> None:
    data = webp(FRAMES)
    pictures = list_pictures(data, LIMITS)
    assert (pictures.height, pictures.width) == (48, 64)
    assert pictures.fps == pytest.approx(10)
    assert pictures.times_s == pytest.approx([index / 10 for index in range(8)])
    for place, found in zip(
        wanted, read_pictures(data, pictures, wanted, LIMITS, lambda each: each), strict=True
    ):
        assert found is not None
        assert found[0] == place
        assert np.array_equal(found[1], FRAMES[place])


def test_pictures_have_their_own_times() -> None:
    pictures = list_pictures(webp(FRAMES[:4], [100, 2000, 300, 50]), LIMITS)
    assert pictures.times_s == pytest.approx([0.0, 0.1, 2.1, 2.4])
    assert not pictures.is_even


def test_it_is_prepared_as_other_clips_are() -> None:
    data = webp(FRAMES)
    video = prepare_video(data, CONFIG)
    assert video.kind == "video"
    assert not video.replaced
    assert sum(len(item.features.data) for item in video.items) == measure_video(data, CONFIG)


def test_what_is_cut_off_shows_what_is_there() -> None:
    data = webp(FRAMES)
    pictures = list_pictures(data[: len(data) * 3 // 4], LIMITS)
    assert 4 <= len(pictures.stamps) < 8
    for length in (20, 21, 30, 44, 60):
        with pytest.raises(MediaError):
            prepare_video(data[:length], CONFIG)


def test_what_is_too_large_is_refused_by_its_headers() -> None:
    data = webp(FRAMES)
    for limits, words in (
        (VideoLimits(max_frames=7), "limit of 7 frames"),
        (VideoLimits(max_seconds=0.5), "limit is 0.5 seconds"),
        (VideoLimits(max_pixels=1000), "limit is 1000 pixels"),
        (VideoLimits(max_bytes=100), "limit is 100 bytes"),
    ):
        with pytest.raises(TooLargeError, match=words):
            prepare_video(data, CONFIG, limits)


def test_a_still_is_no_clip() -> None:
    buffer = io.BytesIO()
    Image.fromarray(FRAMES[0]).save(buffer, "WEBP")
    with pytest.raises(MediaError, match="animated WebP"):
        prepare_video(buffer.getvalue(), CONFIG)
