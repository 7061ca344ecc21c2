"""Preprocessor configs of every layout are read as transformers reads them; faults name file and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sensorium.media.vision.config import read_vision_config
from sensorium.protocols.errors import ModelLoadError
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

PUBLISHED = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
}
PUBLISHED_VIDEO = PUBLISHED | {"size": {"longest_edge": 25165824, "shortest_edge": 4096}}


def folder(path: Path, **files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def test_the_published_layout(tmp_path: Path) -> None:
    config = read_vision_config(
        folder(tmp_path, preprocessor_config=PUBLISHED, video_preprocessor_config=PUBLISHED_VIDEO)
    )
    assert (config.image.min_pixels, config.image.max_pixels) == (65536, 16777216)
    assert (config.image.patch_size, config.image.merge_size, config.image.factor) == (16, 2, 32)
    assert config.image.mean == config.image.std == (0.5, 0.5, 0.5)
    video = config.video
    assert (video.pixels.min_pixels, video.pixels.max_pixels) == (4096, 25165824)
    assert (video.fps, video.num_frames, video.min_frames, video.max_frames) == (2.0, None, 4, 768)


def test_the_combined_layout_goes_first(tmp_path: Path) -> None:
    combined = {
        "image_processor": PUBLISHED | {"merge_size": 3},
        "video_processor": PUBLISHED_VIDEO | {"fps": None, "num_frames": 9, "cap_pixels_per_frame": True},
    }
    config = read_vision_config(folder(tmp_path, processor_config=combined, preprocessor_config=PUBLISHED))
    assert config.image.merge_size == 3
    assert (config.video.fps, config.video.num_frames) == (None, 9)
    assert config.video.cap_pixels_per_frame


def test_videos_fall_back_to_the_images_file(tmp_path: Path) -> None:
    plain = {"processor_class": "Qwen3VLProcessor"}
    config = read_vision_config(folder(tmp_path, processor_config=plain, preprocessor_config=PUBLISHED))
    assert config.video.pixels == config.image


def test_absent_fields_are_the_reference_defaults(tmp_path: Path) -> None:
    reference = Qwen2VLImageProcessorPil()
    image = read_vision_config(folder(tmp_path, preprocessor_config={})).image
    assert image.min_pixels == reference.size["shortest_edge"]
    assert image.max_pixels == reference.size["longest_edge"]
    assert [*image.mean] == [*reference.image_mean]
    assert [*image.std] == [*reference.image_std]
    for name in (
        "patch_size",
        "merge_size",
        "temporal_patch_size",
        "rescale_factor",
        "do_resize",
        "resample",
    ):
        assert getattr(image, name) == getattr(reference, name)


def test_what_transformers_saves_is_read(tmp_path: Path) -> None:
    saved = Qwen2VLImageProcessorPil(
        min_pixels=100, max_pixels=9000, patch_size=8, image_mean=[0.1, 0.2, 0.3]
    )
    saved.save_pretrained(tmp_path)
    image = read_vision_config(tmp_path).image
    assert (image.min_pixels, image.max_pixels, image.patch_size) == (100, 9000, 8)
    assert image.mean == (0.1, 0.2, 0.3)


def test_old_names_of_the_bounds(tmp_path: Path) -> None:
    old = PUBLISHED | {"min_pixels": 50, "max_pixels": 60}
    image = read_vision_config(folder(tmp_path, preprocessor_config=old)).image
    assert (image.min_pixels, image.max_pixels) == (50, 60)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("patch_size", 0),
        ("patch_size", "16"),
        ("merge_size", 1.5),
        ("size", {"shortest_edge": 9, "longest_edge": 8}),
        ("size", {"shortest_edge": 0}),
        ("size", 224),
        ("image_mean", [0.5, 0.5]),
        ("image_std", [0.5, 0.0, 0.5]),
        ("resample", 6),
        ("rescale_factor", -1),
        ("do_resize", "yes"),
    ],
)
def test_faults_name_the_file_and_field(tmp_path: Path, field: str, value: object) -> None:
    files = folder(tmp_path, preprocessor_config=PUBLISHED | {field: value})
    with pytest.raises(ModelLoadError, match=rf"preprocessor_config\.json: {field} must be"):
        read_vision_config(files)


@pytest.mark.parametrize(("field", "value"), [("fps", 0), ("num_frames", 0), ("max_frames", "all")])
def test_faults_of_video_fields(tmp_path: Path, field: str, value: object) -> None:
    files = folder(
        tmp_path, preprocessor_config=PUBLISHED, video_preprocessor_config=PUBLISHED_VIDEO | {field: value}
    )
    with pytest.raises(ModelLoadError, match=rf"video_preprocessor_config\.json: {field} must be"):
        read_vision_config(files)


def test_no_file_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"no preprocessor_config\.json"):
        read_vision_config(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(ModelLoadError, match="not readable JSON"):
        read_vision_config(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text("[]")
    with pytest.raises(ModelLoadError, match="not a JSON object"):
        read_vision_config(tmp_path)
