"""Granite Speech answers as `generate` does; an adapter inside a checkpoint is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sensorium.engine.models.registry import open_model
from sensorium.protocols.errors import ModelLoadError
from support.exactness import check_every_way
from support.media_checkpoints import Checkpoint
from support.media_families.clips import CLIP_FAMILIES
from support.media_family import Family, Sound, make_media_folder


@pytest.mark.parametrize("family", CLIP_FAMILIES, ids=[family.model_type for family in CLIP_FAMILIES])
@torch.inference_mode()
def test_what_is_heard_is_answered_as_transformers_does(tmp_path: Path, family: Family) -> None:
    checkpoint = Checkpoint(make_media_folder(tmp_path, family, seed=2), family)
    cases = [
        checkpoint.case("What does the quick brown fox do over the lazy dog?"),
        checkpoint.case(Sound(1.31, 1), "What is to be heard?"),
        checkpoint.case("First:", Sound(0.6, 2), "and then:", Sound(0.6, 3), "What is the difference?"),
    ]
    others = [checkpoint.case(Sound(1.31, seed), "What is to be heard?") for seed in (4, 5)]
    assert {other.prompt for other in others} == {cases[1].prompt}
    assert {other.expected for other in others} != {cases[1].expected}
    check_every_way(checkpoint.model, [*cases, *others], seed=0)


def test_a_checkpoint_with_an_adapter_inside_is_refused_by_name(tmp_path: Path) -> None:
    folder = make_media_folder(tmp_path, CLIP_FAMILIES[0])
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"adapter_config\.json.*merge_and_unload"):
        open_model(folder, device="cpu", dtype="float32")
