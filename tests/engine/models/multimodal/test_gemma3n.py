"""Gemma 3n answers prompts of pictures and sound as `generate` does, where timm is installed."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from sensorium.engine.models.registry import open_model
from sensorium.protocols.errors import ModelLoadError
from support.exactness import check_every_way
from support.gemma3n_family import gemma3n
from support.media_checkpoints import Checkpoint
from support.media_family import Sound, make_media_folder, tokenizer_of
from support.text_folder import write_tokenizer

HAS_TIMM = find_spec("timm") is not None and find_spec("torchvision") is not None


@pytest.mark.skipif(not HAS_TIMM, reason="its vision tower is one of timm, which is not installed")
@torch.inference_mode()
def test_pictures_beside_sound_are_answered_as_transformers_does(tmp_path: Path) -> None:
    family = gemma3n()
    checkpoint = Checkpoint(make_media_folder(tmp_path, family, seed=2), family)
    cases = [
        checkpoint.case("What does the quick brown fox do over the lazy dog?"),
        checkpoint.case((40, 56, 1), "What is in the picture?"),
        checkpoint.case(Sound(1.31, 1), "What is to be heard?"),
        checkpoint.case(
            *("First:", Sound(0.93, 2), (70, 36, 2), "then:", (33, 33, 3), Sound(0.93, 3)),
            "What is the difference?",
        ),
    ]
    others = [
        checkpoint.case((40, 56, 4), "What is in the picture?"),
        checkpoint.case(Sound(1.31, 4), "What is to be heard?"),
    ]
    for case, other in zip(cases[1:], others, strict=False):
        assert other.prompt == case.prompt
        assert other.expected != case.expected
    check_every_way(checkpoint.model, [*cases, *others], seed=0, positions=checkpoint.source.positions)


@pytest.mark.skipif(HAS_TIMM, reason="timm is installed")
def test_without_timm_a_checkpoint_is_refused_with_that_word(tmp_path: Path) -> None:
    family = gemma3n()
    write_tokenizer(tmp_path, tokenizer_of(family))
    config = {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match="timm, which is not installed"):
        open_model(tmp_path, device="cpu", dtype="float32")
