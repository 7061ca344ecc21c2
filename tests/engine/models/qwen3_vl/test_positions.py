"""Rotary positions against `transformers`, and rows against the whole."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.models.qwen3_vl.positions import RotaryPositions, rotary_positions
from sensorium.protocols.engine.messages import ContentHash, MediaSpan
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

pieces = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.booleans()), max_size=4
)  # text before, height and width in merged patches, whether it is video


def layout(parts: list[tuple[int, int, int, bool]], num_tail: int) -> tuple[list[MediaSpan], list[int]]:
    """Spans, and each token's kind: 0 text, 1 image, 2 video."""
    spans: list[MediaSpan] = []
    kinds: list[int] = []
    for num_text, height, width, is_video in parts:
        kinds += [0] * num_text
        spans.append(MediaSpan(ContentHash("A"), len(kinds), height * width, (1, height, width)))
        kinds += [2 if is_video else 1] * (height * width)
    return spans, kinds + [0] * num_tail


@given(pieces, st.integers(1, 5))
def test_prompt_and_answer_are_placed_as_transformers_does(
    parts: list[tuple[int, int, int, bool]], num_tail: int
) -> None:
    spans, kinds = layout(parts, num_tail)
    grids = [
        [torch.tensor([[1, 2 * h, 2 * w] for _, h, w, is_video in parts if is_video == wanted])]
        for wanted in (False, True)
    ]
    image, video = (each[0] if len(each[0]) else None for each in grids)
    model: Any = SimpleNamespace(
        config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2)),
    )
    model.get_vision_position_ids = partial(Qwen3VLModel.get_vision_position_ids, model)
    expected, delta = Qwen3VLModel.get_rope_index(
        model,
        torch.zeros(1, len(kinds), dtype=torch.int64),
        mm_token_type_ids=torch.tensor([kinds]),
        image_grid_thw=image,
        video_grid_thw=video,
    )
    positions = RotaryPositions(spans)
    assert torch.tensor(positions.rows(0, len(kinds))).tolist() == expected[:, 0].tolist()
    answer = list(range(len(kinds) + int(delta), len(kinds) + int(delta) + 3))
    assert [list(axis) for axis in positions.rows(len(kinds), 3)] == [answer] * 3


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)), max_size=3
    ),
    st.floats(0.1, 4),
    st.integers(1, 5),
)
def test_a_video_of_several_items_is_placed_as_one(
    videos: list[tuple[int, int, int, int]], interval: float, num_tail: int
) -> None:
    """Each item at once, as the published rule has it: text goes on behind the largest position."""
    spans: list[MediaSpan] = []
    expected: list[tuple[int, int, int]] = []
    for num_text, num_items, height, width in videos:
        base = max((max(each) + 1 for each in expected), default=0)
        expected += [(base + index,) * 3 for index in range(num_text)]
        base += num_text
        for item in range(num_items):
            later = int(item * interval)
            since = later if item else None
            grid = (1, height, width)
            spans.append(MediaSpan(ContentHash("A"), len(expected), height * width, grid, since_start=since))
            expected += [(base + later, base + y, base + x) for y in range(height) for x in range(width)]
    base = max((max(each) + 1 for each in expected), default=0)
    expected += [(base + index,) * 3 for index in range(num_tail)]
    rows = RotaryPositions(spans).rows(0, len(expected))
    assert list(zip(*rows, strict=True)) == expected


@given(pieces, st.data())
def test_any_chunk_has_the_rows_of_the_whole(
    parts: list[tuple[int, int, int, bool]], data: st.DataObject
) -> None:
    spans, kinds = layout(parts, 4)
    positions = RotaryPositions(spans)
    whole = positions.rows(0, len(kinds))
    start = data.draw(st.integers(0, len(kinds) - 1))
    end = data.draw(st.integers(start, len(kinds)))
    assert positions.rows(start, end - start) == tuple(axis[start:end] for axis in whole)


def test_without_grids_the_index_is_the_position() -> None:
    assert rotary_positions([MediaSpan(ContentHash("A"), 2, 3)]) is None
    assert rotary_positions([]) is None
