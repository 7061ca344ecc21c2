"""Every family that sees or hears answers as `generate` does in float32, whatever is in the prompt and
however run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.exactness import check_every_way, check_some_ways
from support.media_checkpoints import Checkpoint
from support.media_families import AUDIO_FAMILIES, FAMILIES
from support.media_family import Family, Sound, make_media_folder

_EVERY_WAY = (
    "llava_next",
    "gemma3",
    "paligemma",
    "qwen2_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "internvl",
    "voxtral",
)
"""One of each kind: tiles, whole items, whole prompts, three axes, levels, states, audio."""


@pytest.fixture
def check(request: pytest.FixtureRequest, family: Family) -> Callable[..., None]:
    """How a family is run: every way if it is one of a kind, or if all are to be (`--every-way`)."""
    every_way = family.model_type in _EVERY_WAY or request.config.getoption("--every-way")
    return check_every_way if every_way else check_some_ways


@pytest.mark.parametrize(
    "family", FAMILIES, ids=[f"{family.model_type}-{family.place}" for family in FAMILIES]
)
@torch.inference_mode()
def test_greedy_equals_transformers_every_way(
    tmp_path: Path, family: Family, check: Callable[..., None]
) -> None:
    checkpoint = Checkpoint(make_media_folder(tmp_path, family), family)
    alone = "What does the quick brown fox do over the lazy dog?"
    cases = [
        checkpoint.case(alone),
        checkpoint.case((40, 56, 1), "What is in the picture?"),
        checkpoint.case("The first:", (70, 36, 2), "and the second:", (33, 33, 3), "What is the difference?"),
    ]
    other = checkpoint.case((40, 56, 4), "What is in the picture?")
    assert other.prompt == cases[1].prompt
    assert other.expected != cases[1].expected
    check(
        checkpoint.model,
        [*cases, other],
        seed=0,
        sees_whole_items=checkpoint.source.sees_whole_items,
        sees_whole_prompts=checkpoint.source.sees_whole_prompts,
        positions=checkpoint.source.positions,
    )


@pytest.mark.parametrize("family", AUDIO_FAMILIES, ids=[family.model_type for family in AUDIO_FAMILIES])
@torch.inference_mode()
def test_what_is_heard_is_answered_as_transformers_does(
    tmp_path: Path, family: Family, check: Callable[..., None]
) -> None:
    checkpoint = Checkpoint(make_media_folder(tmp_path, family), family)
    cases = [
        checkpoint.case("What does the quick brown fox do over the lazy dog?"),
        checkpoint.case(Sound(1.31, 1), "What is to be heard?"),
        checkpoint.case("First:", Sound(2.0, 2), "and then:", Sound(0.57, 3), "What is the difference?"),
    ]
    other = checkpoint.case(Sound(1.31, 4), "What is to be heard?")
    assert other.prompt == cases[1].prompt
    assert other.expected != cases[1].expected
    check(checkpoint.model, [*cases, other], seed=0)
