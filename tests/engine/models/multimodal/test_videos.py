"""Families that take videos answer as `generate` does on the same pixels, in float32, however run."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import torch
from sensorium.protocols.errors import BadRequestError
from support.exactness import check_every_way, run_model
from support.video_checkpoints import (
    VIDEO_FAMILIES,
    Film,
    Shown,
    VideoCheckpoint,
    VideoFamily,
    conversation,
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
    if family.has_intro:  # with so much in common there are blocks for all, and none is preempted
        other.check(run_model(checkpoint.model, [other], seed=0)[0], "in any chunks")
    check_every_way(
        checkpoint.model,
        cases if family.has_intro else [*cases, other],
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


def test_a_film_for_smolvlm_says_its_times(tmp_path: Path) -> None:
    family = next(each for each in VIDEO_FAMILIES if each.name == "smolvlm")
    checkpoint = VideoCheckpoint(make_video_folder(tmp_path, family), family)
    film = checkpoint.shown(Film(3, interval_s=62.5))
    text = checkpoint.prompts.text
    for media, length in ((film, "0:02:05"), (msgspec.structs.replace(film, duration_s=3725.9), "1:02:05")):
        ids = checkpoint.prompts.chat(conversation(("Look:", Film(3), "Why?")), [media]).token_ids
        shown = re.sub("(<image>)+", "<image>", text.decode_all(ids))
        around = "<fake_token_around_image>"
        frames = "".join(
            f"\nFrame from {time}:{around}<global-img><image>{around}" for time in ("00:00", "01:02", "02:05")
        )
        start = f"You are provided the following series of three frames from a {length} [H:MM:SS] video.\n"
        assert f"Look:{start}{frames}\n\nWhy?" in shown
    with pytest.raises(BadRequestError, match="2 places for video, but 1"):
        checkpoint.prompts.chat(conversation((Film(3), Film(3))), [film])
    # What a client writes is no place.
    checkpoint.prompts.chat(conversation(("What is <video> in HTML?", Film(3))), [film])
