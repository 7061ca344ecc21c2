"""Phi-4 multimodal answers as `generate` does about pictures, about sound, and about both in one prompt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from support.exactness import TIE, Case, check_every_way
from support.media_checkpoints import Checkpoint
from support.media_families.phi4 import PHI4
from support.media_family import Content, Sound, make_media_folder


def opened(folder: Path, *, seed: int = 0) -> Checkpoint:
    """The reference's tower looks both ways: without a mask it does so only where its attention is eager."""
    checkpoint = Checkpoint(make_media_folder(folder, PHI4, seed=seed), PHI4)
    checkpoint.reference.model.embed_tokens_extend.image_embed.img_processor.set_attn_implementation("eager")
    return checkpoint


def both(checkpoint: Checkpoint, *content: Content) -> Case:
    """A question about pictures and sound: `generate` takes the placeholder of sound wherever it lies."""
    prompt = checkpoint.prompt(*content)
    alone = checkpoint.prompt(Sound(0.1))
    audio_id = alone.token_ids[alone.spans[0].start]
    ids = list(prompt.token_ids)
    for span in prompt.spans:
        if span.kind == "audio":
            ids[span.start : span.start + span.num_tokens] = [audio_id] * span.num_tokens
    case = checkpoint.reference_case(replace(prompt, token_ids=tuple(ids)))
    return replace(case, prompt=prompt.token_ids)


@torch.inference_mode()
def test_pictures_and_sound_are_answered_as_transformers_does(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, seed=1)
    cases = [
        checkpoint.case("What does the quick brown fox do over the lazy dog?"),
        checkpoint.case((40, 56, 1), "What is in the picture?"),
        checkpoint.case("The first:", (70, 36, 2), "and the second:", (33, 20, 3), "What is the difference?"),
        checkpoint.case(Sound(1.31, 1), "What is to be heard?"),
        checkpoint.case("First:", Sound(0.6, 2), "and then:", Sound(0.6, 3), "What is the difference?"),
        both(checkpoint, Sound(1.31, 1), (40, 56, 1), "What is to be heard?"),
    ]
    others = [
        checkpoint.case((40, 56, 4), "What is in the picture?"),
        checkpoint.case(Sound(1.31, 4), "What is to be heard?"),
    ]
    for other, case in zip(others, (cases[1], cases[3]), strict=True):
        assert other.prompt == case.prompt
        assert abs(other.margins[0] - case.margins[0]) > 100 * TIE, "other logits"
    check_every_way(checkpoint.model, [*cases, *others], seed=0)


@torch.inference_mode()
def test_sound_beside_a_picture_has_rows_of_its_own(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path)
    alone = checkpoint.prompt(Sound(0.6))
    beside = checkpoint.prompt(Sound(0.6), (40, 56, 1))
    (item,), sound = alone.items, beside.items[0]
    assert item.content_hash == sound.content_hash, "it is encoded once"
    placeholder, other = ({prompt.token_ids[prompt.spans[0].start]} for prompt in (alone, beside))
    assert placeholder != other
