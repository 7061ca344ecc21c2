"""Every family that sees or hears answers as `generate` does in float32, whatever is in the prompt and
however run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from sensorium.engine.models.base import RecurrentModel
from sensorium.engine.models.multimodal.model import MultimodalModel
from support.exactness import Case, check_every_way, check_some_ways
from support.media_checkpoints import Checkpoint
from support.media_families import AUDIO_FAMILIES, FAMILIES
from support.media_family import Family, Sound, make_media_folder

_EVERY_WAY = {
    "tiles": "llava_next",
    "marks among rows": "mistral3",
    "patches": "qwen2_vl",
    "axes": "qwen2_vl",
    "levels": "qwen3_vl_moe",
    "states": "qwen3_5",
    "several tables": "gemma3",
    "whole items": "gemma3",
    "whole items in windows": "gemma4",
    "whole prompts": "paligemma",
    "padding": "gemma4",
    "layer inputs": "gemma4",
    "media mask": "ernie4_5_vl_moe",
    "audio": "voxtral",
}
"""What of a family changes how it is planned or run, and which is checked every way for it. `make families`
checks all."""


@pytest.fixture
def check(request: pytest.FixtureRequest, family: Family) -> Callable[[Checkpoint, Sequence[Case]], None]:
    """Every way if the family stands for a rule, or if all are to be (`--every-way`)."""
    every_way = family.model_type in _EVERY_WAY.values() or request.config.getoption("--every-way")
    run = check_every_way if every_way else check_some_ways

    def check(checkpoint: Checkpoint, cases: Sequence[Case]) -> None:
        rules = set(_rules_of(checkpoint))
        stands_for = {rule for rule, name in _EVERY_WAY.items() if name == family.model_type}
        assert rules <= _EVERY_WAY.keys(), "a rule that no family is checked every way for"
        assert stands_for <= rules
        source = checkpoint.source
        run(
            checkpoint.model,
            cases,
            seed=0,
            sees_whole_items=source.sees_whole_items,
            sees_whole_prompts=source.info.sees_whole_prompts,
            positions=source.positions,
        )

    return check


def _rules_of(checkpoint: Checkpoint) -> Iterator[str]:
    """Those of `_EVERY_WAY`."""
    model = checkpoint.model
    assert isinstance(model, MultimodalModel)
    family, width = model._family, checkpoint.reference.get_input_embeddings().embedding_dim
    found = {
        "tiles": family.merge_size is None and "image" in family.places,
        "marks among rows": family.row_tokens is not None,
        "patches": family.merge_size is not None,
        "axes": family.rotary_axes > 1,
        "levels": family.row_width != width,
        "states": isinstance(model, RecurrentModel),
        "several tables": len(model.kv_shape.layout(model.dtype).groups) > 1,
        "whole items": family.sees_whole_items,
        "whole items in windows": family.sees_whole_in_windows,
        "whole prompts": family.sees_whole_prompts,
        "padding": family.padding is not None,
        "layer inputs": family.layer_inputs is not None,
        "media mask": family.media_mask is not None,
        "audio": "audio" in family.places,
    }
    return (rule for rule, holds in found.items() if holds)


@pytest.mark.parametrize(
    "family", FAMILIES, ids=[f"{family.model_type}-{family.place}" for family in FAMILIES]
)
@torch.inference_mode()
def test_greedy_equals_transformers_every_way(
    tmp_path: Path, family: Family, check: Callable[[Checkpoint, Sequence[Case]], None]
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
    check(checkpoint, [*cases, other])


@pytest.mark.parametrize("family", AUDIO_FAMILIES, ids=[family.model_type for family in AUDIO_FAMILIES])
@torch.inference_mode()
def test_what_is_heard_is_answered_as_transformers_does(
    tmp_path: Path, family: Family, check: Callable[[Checkpoint, Sequence[Case]], None]
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
    check(checkpoint, [*cases, other])
