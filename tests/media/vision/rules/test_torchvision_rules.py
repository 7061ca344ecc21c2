"""Rules of pixels make of pictures, bit for bit, what processors of `transformers` do that need
torchvision."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sensorium.media.vision.pixel_rule import open_rule
from sensorium.media.vision.rules.split_squares import SplitSquares
from sensorium.media.vision.video import sample_indices
from support.torchvision_processors import torchvision_processor
from support.vision_files import picture, png
from transformers.video_utils import VideoMetadata

SIZES = (
    *((40, 60), (60, 40), (33, 33), (20, 90), (31, 30), (300, 200), (16, 16), (100, 9)),
    *((64, 64), (7, 8), (250, 400), (47, 29), (149, 91), (61, 180)),
)
Array = npt.NDArray[np.float32]


def without_padding(found: Any) -> list[tuple[Array, tuple[int, ...]]]:  # noqa: ANN401 (of transformers)
    shapes = found["spatial_shapes"].numpy()
    return [
        (pixels.numpy()[: shape.prod()], tuple(shape))
        for pixels, shape in zip(found["pixel_values"], shapes, strict=True)
    ]


def by_lines(found: Any) -> list[tuple[Array, tuple[int, ...]]]:  # noqa: ANN401
    pixels = found["pixel_values"].flatten(1).numpy()
    return [(pixels, tuple(found["image_grid_thw"][0, 1:].tolist()))]


def tiles(found: Any) -> list[tuple[Array, tuple[int, ...]]]:  # noqa: ANN401
    pixels = found["pixel_values"].float().flatten(0, -4).numpy()
    rows, columns = found["aspect_ratios"][0].tolist()
    places = [(row + 1, column + 1) for row in range(rows) for column in range(columns)]
    places = [*places, (0, 0)] if len(places) > 1 else [(0, 0)]
    return list(zip(pixels, places, strict=True))


Case = tuple[str, str, str, dict[str, Any], Callable[[Any], list[tuple[Array, tuple[int, ...]]]]]
_LFM2 = {
    "encoder_patch_size": 4,
    "tile_size": 32,
    "min_image_tokens": 2,
    "max_image_tokens": 16,
}
_KIMI = {"patch_size": 4, "max_patches": 60, "size": {"max_height": 20, "max_width": 20}}
_LLAMA4 = {"size": {"height": 30, "width": 30}}
CASES: tuple[Case, ...] = (
    (".rules.canvas_tiles", "llama4", "Llama4ImageProcessor", _LLAMA4, tiles),
    (
        ".rules.canvas_tiles",
        "llama4",
        "Llama4ImageProcessor",
        _LLAMA4 | {"max_patches": 5, "image_mean": [0.48, 0.45, 0.4], "image_std": [0.26, 0.27, 0.3]},
        tiles,
    ),
    (
        ".rules.canvas_tiles",
        "llama4",
        "Llama4ImageProcessor",
        _LLAMA4 | {"resize_to_max_canvas": True, "max_patches": 6},
        tiles,
    ),
    (".rules.padded_patches", "kimi_k25", "Kimi_K25ImageProcessor", _KIMI, by_lines),
    (
        ".rules.padded_patches",
        "kimi_k25",
        "Kimi_K25ImageProcessor",
        _KIMI | {"do_normalize": False, "max_patches": 16384, "resample": 2},
        by_lines,
    ),
    (".rules.split_patches", "lfm2_vl", "Lfm2VlImageProcessor", _LFM2, without_padding),
    (
        ".rules.split_patches",
        "lfm2_vl",
        "Lfm2VlImageProcessor",
        _LFM2 | {"use_thumbnail": False, "max_tiles": 3},
        without_padding,
    ),
    (
        ".rules.split_patches",
        "lfm2_vl",
        "Lfm2VlImageProcessor",
        _LFM2 | {"do_image_splitting": False},
        without_padding,
    ),
)


@pytest.mark.parametrize(("module", "model_type", "name", "options", "read"), CASES)
def test_features_equal_the_reference(
    tmp_path: Path,
    module: str,
    model_type: str,
    name: str,
    options: dict[str, Any],
    read: Callable[[Any], list[tuple[Array, tuple[int, ...]]]],
) -> None:
    processor = torchvision_processor(model_type, name)(**options)
    processor.save_pretrained(tmp_path)
    rule = open_rule(module, tmp_path)
    for height, width in SIZES:
        pixels = picture(height, width)
        items = rule.prepare_picture(pixels).items
        expected = read(processor(pixels, return_tensors="pt"))
        for item, (array, grid) in zip(items, expected, strict=True):
            found = np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)
            np.testing.assert_array_equal(found, array)
            assert item.features.grid is not None
            assert item.features.grid[1:] == grid
        size = sum(len(item.features.data) for item in items)
        data = png(height, width)
        assert size <= rule.image_bytes(height, width) == rule.measure_image(data)
        assert rule.prepare_image(data).items == items


_SMOLVLM = {
    "size": {"longest_edge": 48},
    "max_image_size": {"longest_edge": 32},
    "video_sampling": {"fps": 2, "max_frames": 6, "video_size": {"longest_edge": 48}},
}


@pytest.mark.parametrize("num_frames", [1, 5, 40, 300])
def test_frames_of_smolvlm_equal_the_reference(tmp_path: Path, num_frames: int) -> None:
    processor = torchvision_processor("smolvlm", "SmolVLMVideoProcessor", kind="video")(**_SMOLVLM)
    fields = {"image_processor_type": "SmolVLMImageProcessor", **_SMOLVLM}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(fields))
    rule = open_rule(".rules.split_squares", tmp_path)
    assert isinstance(rule, SplitSquares)
    metadata = VideoMetadata(total_num_frames=num_frames, fps=10.0, duration=num_frames / 10)
    chosen = sample_indices(num_frames, 10.0, rule.videos)
    assert chosen == processor.sample_frames(metadata).tolist()
    frames = [picture(30, 50, index) for index in chosen]
    found = rule.prepare_frames(frames, [index / 10 for index in chosen])
    expected = processor([np.stack(frames)], do_sample_frames=False, return_tensors="pt")["pixel_values"]
    for item, array in zip(found.items, expected[0].numpy(), strict=True):
        values = np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)
        np.testing.assert_array_equal(values, array)
