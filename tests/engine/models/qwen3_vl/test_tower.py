"""The vision tower's rows equal transformers' `get_image_features`, whoever shares the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sensorium.engine.models.base import EncoderOutput, Model
from sensorium.engine.models.dense.model import EmbeddedRows
from sensorium.engine.models.registry import open_model
from sensorium.protocols.engine.messages import Features
from support.vl_folder import VlShape, make_vl_folder
from torch import Tensor
from transformers import Qwen3VLForConditionalGeneration

Grid = tuple[int, int, int]

SHAPES = {
    "plain": VlShape(),
    "deep": VlShape(vision_depth=5, deepstack=(0, 2, 3), vision_size=48, vision_heads=4, num_positions=16),
    "flat": VlShape(deepstack=(), vision_heads=1, patch_size=2, num_positions=2304),
    "triple": VlShape(merge_size=3, deepstack=(1,), num_positions=4),
    "single": VlShape(merge_size=1, deepstack=(0, 1, 2)),
}


@pytest.fixture(scope="module", params=list(SHAPES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Any]:
    """Our model and the reference of one shape."""
    folder: Path = tmp_path_factory.mktemp("vl") / request.param
    make_vl_folder(folder, seed=len(request.param), shape=SHAPES[request.param])
    reference = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    return open_model(folder, device="cpu", dtype="float32").load(), reference


def random_patches(grids: list[Grid], values: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(height * width, values, generator=generator) for _, height, width in grids]


def encode(model: Model, patches: list[Tensor], grids: list[Grid]) -> list[EmbeddedRows]:
    def checked(output: EncoderOutput) -> EmbeddedRows:
        assert isinstance(output, EmbeddedRows)
        return output

    features = [
        Features(shape=tuple(each.shape), data=each.numpy().tobytes(), grid=grid)
        for each, grid in zip(patches, grids, strict=True)
    ]
    for each in features:
        model.check_features(each)
    with torch.inference_mode():
        return [checked(output) for output in model.encode(features)]


def assert_close(ours: Tensor, expected: Tensor) -> None:
    """Within 1e-4 of the largest value: float32 of two orders of summation. The norms of 16 values divide
    by what may be nearly nothing: over 400 random inputs the reference itself is up to 1.4e-5 off its
    float64 result, and rare inputs reach 4e-5; a wrong position or weight is off by 1e-1."""
    scale = max(1.0, float(expected.abs().max()))
    assert float((ours - expected).abs().max()) < 1e-4 * scale


def sizes(reference: Any) -> tuple[int, int]:  # noqa: ANN401 (a model of transformers)
    vision = reference.config.vision_config
    return vision.spatial_merge_size, 3 * 2 * vision.patch_size**2


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=1, max_size=7), st.integers(0, 99))
def test_rows_equal_the_reference(pair: tuple[Model, Any], shapes: list[tuple[int, int]], seed: int) -> None:
    """Sizes may repeat, in any order; a grid of one token and long ones are among them."""
    model, reference = pair
    merge, values = sizes(reference)
    grids = [(1, merge * height, merge * width) for height, width in shapes]
    patches = random_patches(grids, values, seed)
    ours = encode(model, patches, grids)
    with torch.inference_mode():
        expected = reference.model.get_image_features(torch.cat(patches), torch.tensor(grids))
    assert len(ours) == len(grids)
    for index, output in enumerate(ours):
        assert output.num_rows == len(output.rows) == shapes[index][0] * shapes[index][1]
        assert_close(output.rows, expected.pooler_output[index])
        assert len(output.deepstack) == len(expected.deepstack_features)
        for level, rows in zip(output.deepstack, expected.deepstack_features, strict=True):
            assert_close(level, rows[index])


def test_a_video_is_its_temporal_patches(pair: tuple[Model, Any]) -> None:
    """What makes one item of each possible: attention and positions do not reach over time."""
    model, reference = pair
    merge, values = sizes(reference)
    grids = [(1, 2 * merge, 3 * merge)] * 4
    patches = random_patches(grids, values)
    ours = encode(model, patches, grids)
    with torch.inference_mode():
        video = torch.tensor([(4, 2 * merge, 3 * merge)])
        expected = reference.model.get_video_features(torch.cat(patches), video)
    assert_close(torch.cat([output.rows for output in ours]), expected.pooler_output[0])


def test_an_item_does_not_depend_on_its_neighbours(pair: tuple[Model, Any]) -> None:
    model, reference = pair
    merge, values = sizes(reference)
    grids = [(1, merge * n, merge * 2) for n in (3, 1, 3, 2)]
    patches = random_patches(grids, values)
    together = encode(model, patches, grids)
    for index, grid in enumerate(grids):
        (alone,) = encode(model, [patches[index]], [grid])
        assert_close(together[index].rows, alone.rows)


def test_an_encoding_keeps_no_more_memory_than_it_says(pair: tuple[Model, Any]) -> None:
    """A slice of a batch would keep the whole batch."""
    model, reference = pair
    merge, values = sizes(reference)
    grids = [(1, merge, merge), (1, merge * 5, merge * 5)]
    small, _ = encode(model, random_patches(grids, values), grids)
    tensors = (small.rows, *small.deepstack)
    assert sum(tensor.untyped_storage().nbytes() for tensor in tensors) == small.num_bytes


def test_nothing_to_encode(pair: tuple[Model, Any]) -> None:
    assert encode(pair[0], [], []) == []


def test_bfloat16_is_as_near_to_float32_as_the_reference_is(tmp_path: Path) -> None:
    folder = make_vl_folder(tmp_path, shape=SHAPES["deep"])
    grids = [(1, 4, 6), (1, 10, 4), (1, 4, 6)]
    patches = random_patches(grids, 96)
    exact = encode(open_model(folder, device="cpu", dtype="float32").load(), patches, grids)
    ours = encode(open_model(folder, device="cpu", dtype="bfloat16").load(), patches, grids)
    reference = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.bfloat16).eval()
    with torch.inference_mode():
        theirs = reference.model.get_image_features(torch.cat(patches), torch.tensor(grids))
    for index, output in enumerate(ours):
        assert output.rows.dtype is torch.bfloat16
        assert output.num_bytes == exact[index].num_bytes // 2
        error = (output.rows.float() - exact[index].rows).norm()
        assert error < 1.5 * (theirs.pooler_output[index].float() - exact[index].rows).norm()
