"""What a request wishes of pictures is what the reference makes of it, and never above the model's own."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from PIL import Image
from sensorium.media.vision.config import VideoConfig, VisionConfig
from sensorium.media.vision.images import image_item, measure_image, prepare_image
from sensorium.media.vision.processor_options import LOW_DETAIL_PIXELS, low_detail, vision_with_options
from sensorium.media.vision.video import measure_video, prepare_video, sample_indices, target_size
from sensorium.protocols.chat.frame_list import pack_frames
from sensorium.protocols.chat.processor_options import (
    NO_PROCESSOR_OPTIONS,
    ProcessorKwargs,
    read_processor_options,
)
from sensorium.protocols.errors import BadRequestError, TooLargeError
from support.vision_files import grey_steps, movie, picture, pixel_config, png, saved
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.video_utils import VideoMetadata

REFERENCE: Any = importlib.import_module("transformers.models.qwen3_vl.video_processing_qwen3_vl")
PIXELS = pixel_config(64 * 4, 64 * 90, patch_size=4)
MODEL = VisionConfig(image=PIXELS, video=VideoConfig(pixels=PIXELS, max_frames=64))


def configured(model: VisionConfig = MODEL, **kwargs: Any) -> VisionConfig:  # noqa: ANN401 (JSON)
    return vision_with_options(model, read_processor_options(convert(kwargs, ProcessorKwargs)))


def test_nothing_wished_changes_nothing() -> None:
    assert vision_with_options(MODEL, NO_PROCESSOR_OPTIONS) == configured() == MODEL


@given(st.integers(8, 120), st.integers(8, 120), st.integers(1, 64 * 90), st.booleans())
def test_images_are_the_references(height: int, width: int, most: int, by_size: bool) -> None:
    least = min(most, PIXELS.min_pixels)
    options: dict[str, Any] = {"min_pixels": least, "max_pixels": most}
    if by_size:
        options = {"size": {"shortest_edge": least, "longest_edge": most}}
    reference = Qwen2VLImageProcessorPil(
        size={"shortest_edge": least, "longest_edge": most},
        patch_size=4,
        merge_size=2,
        temporal_patch_size=2,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    pixels = picture(height, width)
    expected = reference(images=pixels, return_tensors="np")
    item = image_item(pixels, configured(**options).image)
    assert item.features.grid == tuple(expected["image_grid_thw"][0])
    found = np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)
    np.testing.assert_array_equal(found, expected["pixel_values"])


@given(
    st.integers(1, 400),
    st.floats(1, 60),
    st.one_of(st.none(), st.floats(0.1, 30)),
    st.one_of(st.none(), st.integers(1, 64)),
    st.integers(4, 64),
)
def test_frames_are_the_references(
    total: int, rate: float, fps: float | None, num_frames: int | None, most: int
) -> None:
    if fps is not None and num_frames is not None:
        num_frames = None
    options: dict[str, Any] = {
        "fps": fps,
        "num_frames": num_frames and min(num_frames, most),
        "max_frames": most,
    }
    config = configured(**{name: value for name, value in options.items() if value is not None}).video
    processor = SimpleNamespace(fps=MODEL.video.fps, min_frames=4, max_frames=most)
    expected = REFERENCE.Qwen3VLVideoProcessor.sample_frames(
        processor,
        VideoMetadata(total_num_frames=total, fps=rate),
        num_frames=options["num_frames"],
        fps=fps,
    )
    assert sample_indices(total, rate, config) == sorted(set(map(int, expected)))


def test_a_videos_size_is_of_all_its_frames() -> None:
    small = configured(size={"longest_edge": 64 * 8, "shortest_edge": 64}).video
    expected = REFERENCE.smart_resize(4, 48, 64, 2, 8, 64, 64 * 8)
    assert target_size(4, 48, 64, small) == expected
    assert configured(max_pixels=64 * 8).video == MODEL.video, "those are of images"


@pytest.mark.parametrize(
    ("kwargs", "key"),
    [
        ({"max_pixels": 64 * 90 + 1}, "max_pixels"),
        ({"min_pixels": 64 * 91}, "min_pixels"),
        ({"min_pixels": 100, "max_pixels": 99}, "min_pixels"),
        ({"size": {"longest_edge": 10**9}}, "size.longest_edge"),
        ({"videos_kwargs": {"size": {"longest_edge": 10**9}}}, "videos_kwargs.size.longest_edge"),
        ({"num_frames": 65}, "num_frames"),
        ({"num_frames": 9, "max_frames": 8}, "num_frames"),
        ({"max_frames": 65}, "max_frames"),
        ({"min_frames": 9, "max_frames": 8}, "min_frames"),
    ],
)
def test_more_than_the_model_takes_is_refused_by_its_key(kwargs: dict[str, Any], key: str) -> None:
    with pytest.raises(BadRequestError, match="allowed: up to") as caught:
        configured(**kwargs)
    assert caught.value.param == f"mm_processor_kwargs.{key}"


def test_low_detail_is_of_images_and_never_more_than_was_there() -> None:
    assert low_detail(MODEL) == MODEL, "it has fewer already"
    large = VisionConfig(image=replace(PIXELS, min_pixels=2**19, max_pixels=2**24), video=MODEL.video)
    found = low_detail(large)
    assert (found.image.min_pixels, found.image.max_pixels) == (LOW_DETAIL_PIXELS, 512 * 512)
    assert found.video == large.video
    grid = image_item(picture(1200, 600), low_detail(configured(large, min_pixels=64)).image).features.grid
    assert grid is not None
    _, rows, columns = grid
    assert rows * columns * 16 <= LOW_DETAIL_PIXELS < (rows + 2) * (columns + 2) * 16
    assert abs(rows / columns - 2) < 0.05
    as_it_is = configured(large, do_resize=False)
    assert low_detail(as_it_is) == as_it_is


def test_an_operators_bound_is_a_ceiling_too() -> None:
    bounded = MODEL.bounded(64 * 20)
    assert configured(bounded, max_pixels=64 * 20).image.max_pixels == 64 * 20
    with pytest.raises(BadRequestError):
        configured(bounded, max_pixels=64 * 21)


@pytest.mark.parametrize(("height", "width"), [(9, 400), (33, 1000), (400, 9), (40, 41), (8, 8)])
def test_a_wished_least_takes_no_picture_beyond_the_model(height: int, width: int) -> None:
    """The reference rounds a narrow picture up, to nearly twice what memory was planned for."""
    model = MODEL.bounded(64 * 64)
    config = configured(model, min_pixels=64 * 64).image
    assert measure_image(png(height, width), config) <= 64 * 64 * 2 * config.bytes_per_pixel


def test_a_clip_at_a_rate_that_is_next_to_none_is_refused_in_few_words() -> None:
    clip = pack_frames([saved(Image.fromarray(picture(8, 8)), "JPEG")])
    with pytest.raises(TooLargeError) as caught:
        measure_video(clip, configured(fps=1e-300).video)
    assert len(str(caught.value)) < 100


def test_without_resizing_a_picture_stays_as_it_is_or_is_refused() -> None:
    config = configured(do_resize=False)
    assert prepare_image(png(16, 24), config.image).items[0].features.grid == (1, 4, 6)
    with pytest.raises(TooLargeError, match=r"96 x 64 pixels \(6144\).* 5760"):
        measure_image(png(64, 96), config.image)
    with pytest.raises(TooLargeError, match=r"96 x 64 pixels \(6144\).* 5760"):
        prepare_image(png(64, 96), config.image)
    clip = movie(grey_steps(8, 16, 24))
    made = prepare_video(clip, configured(do_resize=False, num_frames=4).video)
    assert [item.features.grid for item in made.items] == [(1, 4, 6)] * 2
    large = movie(grey_steps(8, 48, 64))
    fixed = configured(do_resize=False, num_frames=4).video
    with pytest.raises(TooLargeError, match=r"4 frames are 64 x 48 pixels"):
        measure_video(large, fixed)
    with pytest.raises(TooLargeError, match=r"4 frames are 64 x 48 pixels"):
        prepare_video(large, fixed)
