"""Rules of pixels of MiniMax M3 and MiniCPM-OCR, whose image processors exist with torchvision only: its
numbers differ by less than a step of a byte, since it resizes with weights of another width than Pillow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sensorium.media.vision.pixel_rule import open_rule
from support.torchvision_processors import torchvision_processor
from support.vision_files import picture

SIZES = ((40, 60), (60, 40), (33, 33), (20, 90), (300, 200), (16, 16))


@pytest.mark.parametrize(
    ("module", "model_type", "name", "options"),
    [
        (
            ".rules.still_patches",
            "minimax_m3_vl",
            "MiniMaxM3VLImageProcessor",
            {"patch_size": 4, "size": {"shortest_edge": 256, "longest_edge": 2048}},
        ),
        (
            ".rules.documents.slices",
            "minicpm_ocr",
            "MiniCPMOcrImageProcessor",
            {"scale_resolution": 32, "patch_size": 4},
        ),
        (
            ".rules.documents.slices",
            "minicpm_ocr",
            "MiniCPMOcrImageProcessor",
            {"scale_resolution": 32, "patch_size": 4, "small_image_upsize": "never", "slice_mode": False},
        ),
    ],
)
def test_features_are_near_those_of_torchvision(
    tmp_path: Path, module: str, model_type: str, name: str, options: dict[str, Any]
) -> None:
    processor = torchvision_processor(model_type, name)(**options)
    processor.save_pretrained(tmp_path)
    rule = open_rule(module, tmp_path)
    step = 1 / 255 / min(processor.image_std)
    for height, width in SIZES:
        pixels = picture(height, width)
        items = rule.prepare_picture(pixels).items
        ours = np.concatenate([np.frombuffer(item.features.data, "<f4") for item in items])
        expected = _in_one(processor(pixels, return_tensors="pt"))
        assert ours.shape == expected.shape
        assert np.abs(ours - expected).max() < 1.01 * step


def _in_one(found: Any) -> npt.NDArray[np.float32]:  # noqa: ANN401 (of transformers)
    """Values in the order of ours."""
    pixels: npt.NDArray[np.float32] = found["pixel_values"].numpy()
    if "target_sizes" not in found:
        return pixels.ravel()
    ends = np.cumsum(np.prod(found["target_sizes"].numpy(), axis=1) * pixels.shape[2])
    return np.concatenate([each.ravel() for each in np.split(pixels[0], ends[:-1], axis=-1)])
