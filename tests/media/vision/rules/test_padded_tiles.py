"""Phi-4 multimodal's tiles are those of its image processor, which needs torchvision, but for the rounding of
resized bytes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sensorium.media.vision.pixel_rule import open_rule
from sensorium.protocols.errors import MediaError
from support.vision_files import picture

SIDE, PATCH = 32, 8
FIELDS = {
    "image_processor_type": "Phi4MultimodalImageProcessor",
    "size": {"height": SIDE, "width": SIDE},
    "patch_size": PATCH,
    "dynamic_hd": 4,
}
LEVEL = 2 / 255
"""What one step of a byte is once it is normalised."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(FIELDS))
    return tmp_path


@pytest.mark.parametrize(
    ("size", "grid", "num_tiles"),
    [((40, 60), (2, 6, 8), 4), ((33, 33), (2, 8, 8), 4), ((20, 90), (1, 3, 12), 3), ((70, 36), (2, 8, 4), 2)],
)
def test_a_picture_lies_in_the_corner_of_its_tiles(
    folder: Path, size: tuple[int, int], grid: tuple[int, int, int], num_tiles: int
) -> None:
    (item,) = open_rule(".rules.padded_tiles", folder).prepare_picture(picture(*size)).items
    assert item.features.grid == grid
    assert item.features.shape == (1 + num_tiles, 3, SIDE, SIDE)
    values = np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)
    columns = num_tiles // grid[0]
    large = values[1:].reshape(grid[0], columns, 3, SIDE, SIDE).transpose(2, 0, 3, 1, 4)
    large = large.reshape(3, grid[0] * SIDE, columns * SIDE)
    assert (large[:, grid[1] * PATCH :] == 1).all()
    assert (large[:, :, grid[2] * PATCH :] == 1).all()


def test_the_small_whole_is_what_torch_resizes(folder: Path) -> None:
    (item,) = open_rule(".rules.padded_tiles", folder).prepare_picture(picture(64, 64)).items
    values = np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)
    large = values[1:].reshape(2, 2, 3, SIDE, SIDE).transpose(2, 0, 3, 1, 4).reshape(1, 3, 64, 64)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(large.copy()), size=(SIDE, SIDE), mode="bicubic", align_corners=False
    )
    np.testing.assert_allclose(values[0], expected[0].numpy(), atol=1e-5)


def test_a_strip_that_is_too_thin_once_resized_is_refused(folder: Path) -> None:
    with pytest.raises(MediaError, match="at least 10"):
        open_rule(".rules.padded_tiles", folder).prepare_picture(picture(4, 300))


@pytest.mark.parametrize("size", [(40, 60), (33, 33), (20, 90), (300, 200), (16, 16), (200, 30)])
def test_features_are_those_of_the_processor(folder: Path, size: tuple[int, int]) -> None:
    pytest.importorskip("torchvision", reason="the reference's image processor needs torchvision")
    from transformers.models.phi4_multimodal.image_processing_phi4_multimodal import (
        Phi4MultimodalImageProcessor,
    )

    fields = {name: value for name, value in FIELDS.items() if name != "image_processor_type"}
    pixels = torch.from_numpy(picture(*size).copy()).permute(2, 0, 1)
    found = Phi4MultimodalImageProcessor(**fields)(pixels, return_tensors="np")
    (item,) = open_rule(".rules.padded_tiles", folder).prepare_picture(picture(*size)).items
    values = np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)
    expected = found["image_pixel_values"][0]
    np.testing.assert_allclose(values[1:], expected[1:], atol=1.01 * LEVEL)
    np.testing.assert_allclose(values[0], expected[0], atol=3 * LEVEL)
    lines, down, across = item.features.grid or (1, 1, 1)
    shown = int(found["image_attention_mask"][0][1:].sum())
    assert shown == down * across
    assert tuple(found["image_sizes"][0]) == (lines * SIDE, (len(values) - 1) // lines * SIDE)
