"""Families that take videos answer as `generate` does on the same pixels, in float32, however run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.exactness import check_every_way
from support.video_checkpoints import (
    VIDEO_FAMILIES,
    Film,
    Shown,
    VideoCheckpoint,
    VideoFamily,
    make_video_folder,
)


@pytest.mark.parametrize("family", VIDEO_FAMILIES, ids=[family.name for family in VIDEO_FAMILIES])
@torch.inference_mode()
def test_films_are_answered_as_transformers_does(tmp_path: Path, family: VideoFamily) -> None:
    checkpoint = VideoCheckpoint(make_video_folder(tmp_path, family), family)
    second: tuple[Shown, ...] = ("a picture:", (40, 56, 1)) if family.mixes else ()
    cases = [
        checkpoint.film_case("What happens?", Film(4, seed=1)),
        checkpoint.film_case("First:", Film(3, seed=10), *second, "and:", Film(3, 33, 20, seed=20), "Why?"),
    ]
    other = checkpoint.film_case("What happens?", Film(4, seed=5))
    assert other.prompt == cases[0].prompt
    assert other.expected != cases[0].expected
    check_every_way(
        checkpoint.model,
        [*cases, other],
        seed=0,
        sees_whole_items=checkpoint.source.sees_whole_items,
        positions=checkpoint.source.positions,
    )


@pytest.mark.parametrize("family", VIDEO_FAMILIES[:2], ids=[family.name for family in VIDEO_FAMILIES[:2]])
@torch.inference_mode()
def test_text_behind_a_long_film_goes_on_after_its_time(tmp_path: Path, family: VideoFamily) -> None:
    checkpoint = VideoCheckpoint(make_video_folder(tmp_path, family), family)
    long, slow = Film(14, 16, 24, seed=1), Film(12, 16, 16, seed=30, interval_s=1.3)
    cases = [
        checkpoint.film_case("What happens?", long, "Why?", place_as_published=True),
        checkpoint.film_case(slow, "and:", (40, 56, 1), "What?", place_as_published=True),
    ]
    check_every_way(checkpoint.model, cases, seed=1)
