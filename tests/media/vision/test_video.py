"""Videos: the frames looked at, their sizes, patches and times are the reference's; limits hold."""

from __future__ import annotations

import importlib
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sensorium.media.vision.config import VideoConfig
from sensorium.media.vision.video import (
    measure_video,
    patch_times,
    prepare_frames,
    prepare_video,
    sample_indices,
    target_size,
)
from sensorium.media.vision.video_container import VideoLimits, check_picture, sniff_video
from sensorium.protocols.chat.frame_list import pack_frames
from sensorium.protocols.engine.messages import MediaItems
from sensorium.protocols.errors import ClientError, MediaError, TooLargeError
from support.audio_files import encoded, tone
from support.vision_files import PixelArray, grey_steps, movie, picture, pixel_config, png, saved
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.video_utils import VideoMetadata

REFERENCE: Any = importlib.import_module("transformers.models.qwen3_vl.video_processing_qwen3_vl")

PIXELS = pixel_config(4096, 48 * 64 * 60, patch_size=4)
CONFIG = VideoConfig(pixels=PIXELS)


def sampler(config: VideoConfig) -> Any:  # noqa: ANN401 (an untyped class's)
    """What of the reference processor its frame sampling looks at."""
    return SimpleNamespace(fps=config.fps, min_frames=config.min_frames, max_frames=config.max_frames)


@given(
    st.integers(1, 5000),
    st.floats(0.5, 240),
    st.one_of(st.none(), st.floats(0.1, 60)),
    st.one_of(st.none(), st.integers(1, 900)),
    st.integers(1, 20),
    st.integers(20, 800),
)
def test_sampling_is_the_reference(
    total: int, fps: float, wanted_fps: float | None, num_frames: int | None, least: int, most: int
) -> None:
    config = VideoConfig(
        pixels=PIXELS, fps=wanted_fps, num_frames=num_frames, min_frames=least, max_frames=most
    )
    indices = sample_indices(total, fps, config)
    metadata = VideoMetadata(total_num_frames=total, fps=fps)
    expected = REFERENCE.Qwen3VLVideoProcessor.sample_frames(sampler(config), metadata, num_frames=num_frames)
    if len(expected) <= total:
        assert indices == list(expected)
    assert indices == sorted(set(indices))
    assert indices[0] >= 0
    assert indices[-1] < total


@given(
    st.integers(2, 800),
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.integers(1, 40),
    st.integers(1, 10**6),
    st.integers(1, 50),
    st.booleans(),
)
def test_sizes_are_the_reference(
    num_frames: int, height: int, width: int, factor: int, least: int, times: int, capped: bool
) -> None:
    pixels = replace(PIXELS, patch_size=factor, merge_size=1, min_pixels=least, max_pixels=least * times)
    config = VideoConfig(pixels=pixels, cap_pixels_per_frame=capped, max_video_tokens=20)
    most = pixels.max_pixels
    if capped:
        most = max(min(20 * factor * factor, most // num_frames), int(least * 1.05)) * num_frames
    try:
        expected = REFERENCE.smart_resize(num_frames, height, width, 2, factor, least, most)
    except ValueError:
        with pytest.raises(MediaError, match="one side may be at most 200 times the other"):
            target_size(num_frames, height, width, config)
        return
    assert target_size(num_frames, height, width, config) == expected


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=20), st.floats(0.5, 120), st.integers(1, 4))
def test_times_are_the_reference(indices: list[int], fps: float, depth: int) -> None:
    expected = Qwen3VLProcessor._calculate_timestamps(None, list(indices), fps, depth)
    assert list(patch_times([index / fps for index in indices], depth)) == expected


def stacked(video: MediaItems) -> npt.NDArray[np.float32]:
    return np.concatenate(
        [np.frombuffer(item.features.data, "<f4").reshape(item.features.shape) for item in video.items]
    )


@pytest.mark.parametrize("num_frames", [1, 2, 3, 6, 7])
def test_patches_are_the_reference(num_frames: int) -> None:
    frames = [picture(48, 64, seed) for seed in range(num_frames)]
    video = prepare_frames(frames, [index / 2 for index in range(num_frames)], CONFIG)
    height, width = target_size(num_frames, 48, 64, CONFIG)
    assert (height, width) == (48, 64)
    values = (torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2).double() / 255 - 0.5) / 0.5
    expected, *grid = REFERENCE.Qwen3VLVideoProcessor.patchify(None, values[None], 4, 2, 2)
    assert grid == [(num_frames + 1) // 2, 12, 16]
    assert [item.features.grid for item in video.items] == [(1, 12, 16)] * grid[0]
    assert [item.num_tokens for item in video.items] == [48] * grid[0]
    np.testing.assert_allclose(stacked(video), expected[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("size", [(250, 330), (30, 41), (100, 37)])
def test_resizing_differs_from_torch_by_roundings_only(size: tuple[int, int]) -> None:
    """The reference resizes bytes with torch's antialiased bicubic filter, we with Pillow's: both round
    after each of two passes, not always in the same order."""
    frames = [picture(*size, seed) for seed in range(4)]
    video = prepare_frames(frames, [0.0, 0.5, 1.0, 1.5], CONFIG)
    target = target_size(4, *size, CONFIG)
    assert target != size
    stack = torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(stack, target, mode="bicubic", antialias=True)
    patched = REFERENCE.Qwen3VLVideoProcessor.patchify(None, resized[None].float(), 4, 2, 2)[0]
    levels = (stacked(video) * 0.5 + 0.5) * 255
    difference = np.abs(levels - patched[0].numpy())
    assert difference.max() < 2.01
    assert difference.mean() < 0.3


FILES = [
    ("mp4", "mpeg4", "yuv420p"),
    ("mp4", "libx264", "yuv420p"),
    ("webm", "libvpx", "yuv420p"),
    ("webm", "libvpx-vp9", "yuv420p"),
    ("gif", "gif", "rgb8"),
    ("avi", "mpeg4", "yuv420p"),
    ("matroska", "mjpeg", "yuvj420p"),
]


def greys(video: MediaItems) -> list[float]:
    """Mean level of each temporal patch, in frames of `grey_steps`."""
    means = [np.frombuffer(item.features.data, "<f4").mean() for item in video.items]
    return [float((mean + 1) * 127.5 / 4) for mean in means]


@pytest.mark.parametrize(("container", "codec", "pixel_format"), FILES)
def test_files_give_the_frames_asked_for(container: str, codec: str, pixel_format: str) -> None:
    data = movie(grey_steps(50), container=container, codec=codec, pixel_format=pixel_format)
    video = prepare_video(data, CONFIG)
    indices = [0, 5, 11, 16, 22, 27, 33, 38, 44, 49]  # 2 frames per second of 5 seconds, evenly spread
    assert sample_indices(50, 10.0, CONFIG) == indices
    pairs = list(zip(indices[::2], indices[1::2], strict=True))
    np.testing.assert_allclose(greys(video), [(a + b) / 2 for a, b in pairs], atol=0.8)
    np.testing.assert_allclose(video.times_s, [(a + b) / 20 for a, b in pairs])


def test_frames_of_a_file_equal_frames_given() -> None:
    """Lossless: what comes out of a file is what `prepare_frames` makes of the same frames."""
    frames = [picture(48, 64, seed) for seed in range(5)]
    data = movie(frames, codec="libx264rgb", pixel_format="rgb24", fps=2, options={"qp": "0"})
    expected = prepare_frames(frames, [0.0, 0.5, 1.0, 1.5, 2.0], CONFIG)
    assert prepare_video(data, CONFIG) == msgspec.structs.replace(expected, duration_s=2.5)


def test_rates_that_are_no_whole_number() -> None:
    data = movie(grey_steps(40), fps=Fraction(30000, 1001))
    video = prepare_video(data, CONFIG)
    indices = sample_indices(40, 30000 / 1001, CONFIG)
    assert len(indices) == 4
    assert video.times_s[0] == (indices[0] + indices[1]) / (30000 / 1001) / 2


def test_a_single_frame_is_shown_twice() -> None:
    video = prepare_video(movie(grey_steps(1)), CONFIG)
    assert len(video.items) == 1
    assert video.times_s == (0.0,)


def test_options_of_a_request() -> None:
    data = movie(grey_steps(50))
    assert len(prepare_video(data, replace(CONFIG, num_frames=7)).items) == 4
    assert len(prepare_video(data, replace(CONFIG, num_frames=900)).items) == 25
    assert len(prepare_video(data, replace(CONFIG, fps=10.0)).items) == 25
    assert len(prepare_video(data, replace(CONFIG, max_frames=6)).items) == 3
    assert len(prepare_video(data, replace(CONFIG, fps=0.01)).items) == 2


def test_a_file_cut_off_shows_what_there_is() -> None:
    """An intact header that promises 50 frames, and packets for fewer."""
    data = movie(grey_steps(50), container="avi")
    counts = set()
    for end in range(1000, len(data), 700):
        try:
            video = prepare_video(data[:end], CONFIG)
        except MediaError:
            continue
        counts.add(len(video.items))
        assert greys(video)[0] < 10
    assert len(counts) > 1


@pytest.mark.parametrize(("container", "codec", "pixel_format"), FILES)
def test_damage_never_escapes(container: str, codec: str, pixel_format: str) -> None:
    data = movie(grey_steps(12), container=container, codec=codec, pixel_format=pixel_format)
    generator = np.random.default_rng(0)
    for _ in range(25):
        broken = bytearray(data)
        for place in generator.integers(0, len(data), 6):
            broken[place] = generator.integers(0, 256)
        try:
            video = prepare_video(bytes(broken), CONFIG)
        except ClientError:
            continue
        assert video.items


def refused(data: bytes, limits: VideoLimits | None = None) -> ClientError:
    with pytest.raises(ClientError) as caught:
        prepare_video(data, CONFIG, limits)
    assert caught.value.param == "video"
    return caught.value


def test_limits_say_what_and_how_much() -> None:
    data = movie(grey_steps(50))
    assert f"{len(data)} bytes; the limit is 99" in refused(data, VideoLimits(max_bytes=99)).message
    assert "64 x 48 pixels; the limit is 3071" in refused(data, VideoLimits(max_pixels=3071)).message
    assert "more than the limit of 49 frames" in refused(data, VideoLimits(max_frames=49)).message
    error = refused(data, VideoLimits(max_seconds=4.9))
    assert isinstance(error, TooLargeError)
    assert "the limit is 4.9 seconds" in error.message
    exact = VideoLimits(max_bytes=len(data), max_pixels=3072, max_frames=50, max_seconds=5.0)
    assert len(prepare_video(data, CONFIG, exact).items) == 5


def test_what_is_no_video() -> None:
    assert "empty" in refused(b"").message
    assert "not in a supported video format" in refused(png(8, 8)).message
    assert "no video track" in refused(encoded(tone(0.3), container="mp4", codec="aac")).message
    assert "one side may be at most 200" in refused(movie([picture(2, 500)] * 4, codec="mpeg4")).message


def test_frames_need_times() -> None:
    with pytest.raises(MediaError, match="0 frames with 0 times"):
        prepare_frames([], [], CONFIG)
    with pytest.raises(MediaError, match="1 frames with 2 times"):
        prepare_frames([picture(16, 16)], [0.0, 1.0], CONFIG)


def test_frames_that_a_client_chose() -> None:
    jpegs = [saved(Image.fromarray(frame), "JPEG", quality=95) for frame in grey_steps(7)]
    data = pack_frames(jpegs, 10.0)
    video = prepare_video(data, CONFIG)
    np.testing.assert_allclose(greys(video), [0.5, 2.5, 4.5, 6.0], atol=0.3)
    assert video.times_s == (0.05, 0.25, 0.45, 0.6)
    assert prepare_video(pack_frames(jpegs), CONFIG).times_s[1] == 1.25  # 2 a second, the model's rate
    assert measure_video(data, CONFIG) == sum(len(item.features.data) for item in video.items)
    assert "8 frames; the model takes up to 7" in refused_by(
        pack_frames([*jpegs, jpegs[0]]), replace(CONFIG, max_frames=7)
    )
    assert "Frame 1 of the video is not a JPEG" in refused(pack_frames([jpegs[0], png(8, 8)])).message
    assert "Frame 1 of the video: " in refused(pack_frames([jpegs[0], jpegs[0][:100]])).message
    assert "damaged" in refused(data[:-1]).message
    assert "the limit is 1 s" in refused(pack_frames(jpegs), VideoLimits(max_seconds=1)).message


def test_what_is_measured_is_refused_as_what_is_opened() -> None:
    for take in (measure_video, prepare_video):
        with pytest.raises(MediaError) as caught:
            take(pack_frames([b"\xff\xd8\xff" + bytes(50)]), CONFIG)
        assert caught.value.param == "video"


@pytest.mark.parametrize("size", [(0, 48), (64, 0), (0, 0)])
def test_pictures_without_a_size_are_no_defect_of_ours(size: tuple[int, int]) -> None:
    with pytest.raises(MediaError, match="has a size"):
        check_picture(*size, VideoLimits())


def refused_by(data: bytes, config: VideoConfig) -> str:
    with pytest.raises(TooLargeError) as caught:
        prepare_video(data, config)
    return caught.value.message


MAGIC = [b"GIF89a", b"RIFF\x40\0\0\0AVI ", b"\x1a\x45\xdf\xa3", b"\0\0\0\x10ftyp", b"OggS", b"\0\0\1\xba"]


@given(st.sampled_from(MAGIC), st.binary(max_size=64))
def test_garbage_behind_a_magic_number_is_refused(magic: bytes, rest: bytes) -> None:
    assert sniff_video(magic + rest) is not None
    assert refused(magic + rest).message


def test_equal_patches_have_equal_hashes() -> None:
    frames: list[PixelArray] = [picture(48, 64, seed) for seed in (0, 1, 0, 1, 1, 0)]
    hashes = [item.content_hash for item in prepare_frames(frames, [0.0] * 6, CONFIG).items]
    assert hashes[0] == hashes[1] != hashes[2]


ONE, UNIT = (1 << 16).to_bytes(4, "big"), (1 << 30).to_bytes(4, "big")
MINUS_ONE, ZERO = (-(1 << 16)).to_bytes(4, "big", signed=True), bytes(4)


@pytest.mark.parametrize(
    ("matrix", "turns"),
    [
        ((ONE, ZERO, ZERO, ONE), 0),
        ((ZERO, ONE, MINUS_ONE, ZERO), -1),  # right goes down: a quarter clockwise, as phones write it
        ((MINUS_ONE, ZERO, ZERO, MINUS_ONE), 2),
        ((ZERO, MINUS_ONE, ONE, ZERO), 1),
    ],
)
def test_a_picture_recorded_on_its_side_is_turned(matrix: tuple[bytes, ...], turns: int) -> None:
    """By the display matrix in an MP4 track's header."""
    corner = np.zeros((48, 64, 3), np.uint8)
    corner[:24, :32] = 255
    data = movie([corner] * 4, codec="libx264", fps=2)
    a, b, c, d = matrix
    place = data.index(ONE + bytes(12) + ONE + bytes(12) + UNIT, data.index(b"tkhd"))
    turned = data[:place] + a + b + ZERO + c + d + ZERO + ZERO + ZERO + UNIT + data[place + 36 :]
    expected = np.ascontiguousarray(np.rot90(corner, turns))
    video = prepare_video(turned, CONFIG)
    exact = prepare_frames([expected] * 4, [0.0, 0.5, 1.0, 1.5], CONFIG)
    assert [item.features.grid for item in video.items] == [item.features.grid for item in exact.items]
    assert np.abs(stacked(video) - stacked(exact)).mean() < 0.05
