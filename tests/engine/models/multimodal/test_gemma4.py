"""Gemma 4 answers prompts of pictures and sound as `generate` does."""

from __future__ import annotations

from pathlib import Path

import torch
from support.exactness import check_every_way
from support.media_checkpoints import Checkpoint
from support.media_families.gemma import HEARING
from support.media_family import Sound, make_media_folder


@torch.inference_mode()
def test_pictures_beside_sound_are_answered_as_transformers_does(tmp_path: Path) -> None:
    checkpoint = Checkpoint(make_media_folder(tmp_path, HEARING), HEARING)
    cases = [
        checkpoint.case("What does the quick brown fox do over the lazy dog?"),
        checkpoint.case(Sound(1.31, 1), "What is to be heard?"),
        checkpoint.case(
            *("First:", Sound(0.93, 2), (70, 36, 2), "then:", (33, 33, 3), Sound(0.57, 3)),
            "What is the difference?",
        ),
    ]
    other = checkpoint.case(Sound(1.31, 4), "What is to be heard?")
    assert other.prompt == cases[1].prompt
    assert other.expected != cases[1].expected
    check_every_way(checkpoint.model, [*cases, other], seed=0, positions=checkpoint.source.positions)
