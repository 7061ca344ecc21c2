"""Frames of Gemma 4's videos are what pictures would be on their budget of rows, each an item."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sensorium.media.vision.pixel_rule import open_rule
from sensorium.protocols.engine.messages import EncoderItem
from support.vision_files import picture

RULE = ".rules.pooled_patches"
HAS_TORCHVISION = find_spec("torchvision") is not None


def folder_of(path: Path, image: dict[str, Any], video: dict[str, Any] | None = None) -> Path:
    (path / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "Gemma4ImageProcessor", **image})
    )
    if video is not None:
        (path / "video_preprocessor_config.json").write_text(json.dumps(video))
    return path


def values(item: EncoderItem) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)


@pytest.mark.parametrize(("height", "width"), [(48, 64), (33, 33), (20, 90)])
def test_frames_are_pictures_on_another_budget(tmp_path: Path, height: int, width: int) -> None:
    (tmp_path / "films").mkdir()
    (tmp_path / "pictures").mkdir()
    films = folder_of(tmp_path / "films", {"patch_size": 4}, {"patch_size": 4, "max_soft_tokens": 12})
    pictures = open_rule(RULE, folder_of(tmp_path / "pictures", {"patch_size": 4, "max_soft_tokens": 12}))
    rule = open_rule(RULE, films)
    frames = [picture(height, width, seed) for seed in range(3)]
    found = rule.prepare_frames(frames, [0.0, 1.0, 61.5])
    assert found.starts_s == (0.0, 1.0, 61.5)
    for item, frame in zip(found.items, frames, strict=True):
        (expected,) = pictures.prepare_picture(frame).items
        assert item.features == expected.features
    assert sum(len(item.features.data) for item in found.items) == rule.video_bytes(3, height, width)


def test_an_operators_bound_is_one_of_frames_too(tmp_path: Path) -> None:
    rule = open_rule(RULE, folder_of(tmp_path, {"patch_size": 4})).bounded(2 * 12 * 12)
    assert rule.max_item_pixels == 2 * 12 * 12
    (frame,) = rule.prepare_frames([picture(48, 96)], [0.0]).items
    assert frame.features.grid == (1, 3, 6)


@pytest.mark.skipif(not HAS_TORCHVISION, reason="the reference needs torchvision")
def test_frames_are_those_of_the_processor(tmp_path: Path) -> None:
    from transformers.models.gemma4.video_processing_gemma4 import Gemma4VideoProcessor

    rule = open_rule(RULE, folder_of(tmp_path, {"patch_size": 4}))
    frames = [picture(48, 64, seed) for seed in range(3)]
    found = Gemma4VideoProcessor(patch_size=4, do_sample_frames=False)(
        [np.stack(frames)], return_tensors="np"
    )
    for index, item in enumerate(rule.prepare_frames(frames, [0.0, 0.5, 1.0]).items):
        is_patch = found["video_position_ids"][index][:, 0] >= 0
        expected = found["pixel_values_videos"][index][is_patch]
        # Pillow's filter and torchvision's round to bytes in another way.
        assert np.abs(values(item) - expected).max() <= 1.01 / 255
