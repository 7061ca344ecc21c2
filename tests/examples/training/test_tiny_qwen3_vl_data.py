"""Batches of tiny-qwen3-vl: a number makes a batch, rows are what template and processors make of it."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_files import MESSAGE_END
from dialogues import Dialogues, Part
from drawing import draw
from lessons import CLIP_CELLS, EVERYTHING, LESSONS, STILL_CELLS, lesson_at
from question_forms import SceneQuestion
from scenes import drawn_scene
from sensorium.engine.models.qwen3_vl.text import read_vision_tokens
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.media.vision.config import read_vision_config
from sensorium.media.vision.images import image_item
from sensorium.media.vision.video import prepare_frames
from still_questions import STILL_KINDS
from support.vl_prompts import expand
from tiny_qwen3_vl_data import (
    FRAME_S,
    LISTING,
    SYSTEMS,
    Batches,
    frame_times,
    merged_patches,
    still_scene,
    still_turns,
)
from tiny_qwen3_vl_model import CELL, DEPTH, TrainedVl, VlBatch, export, model_config
from tokenizers import Tokenizer
from train_tiny_qwen3_vl import built_tokenizer
from transformers import AutoTokenizer

NUM_ROWS = 12
LATE = 5_000
"""A step of the last lesson, which has everything."""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return built_tokenizer(0, num_scenes=40)


@pytest.fixture(scope="module")
def folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vl") / "model"
    export(TrainedVl(model_config(tokenizer)).vl.state_dict(), tokenizer, path)
    return path


def same(one: VlBatch, other: VlBatch) -> bool:
    return all(
        torch.equal(first, second)
        for first, second in (
            (one.inputs, other.inputs),
            (one.labels, other.labels),
            (one.positions, other.positions),
            *((a.patches, b.patches) for a, b in zip(one.pictures, other.pictures, strict=True)),
        )
        if first.shape == second.shape
    ) and (one.inputs.shape == other.inputs.shape)


def test_a_batch_depends_on_its_number_alone(tokenizer: Tokenizer) -> None:
    first, second = (Batches(tokenizer, seed=0, num_rows=NUM_ROWS) for _ in range(2))
    expected = [first.batch(number) for number in (0, 1, LATE)]
    assert same(second.batch(LATE), expected[2])
    assert same(second.batch(1), expected[1])
    assert not same(expected[0], expected[1])
    assert not same(Batches(tokenizer, seed=1, num_rows=NUM_ROWS).batch(0), expected[0])


def test_rows_have_a_place_for_every_token_of_their_pictures(tokenizer: Tokenizer) -> None:
    batches = Batches(tokenizer, seed=0, num_rows=NUM_ROWS)
    for number in (*range(4), 600, 1400, 2400, *range(LATE, LATE + 20)):
        batch = batches.batch(number)
        merged = sum(
            pictures.patches.shape[0] * pictures.patches.shape[1] // 4 for pictures in batch.pictures
        )
        assert int(batch.visual.sum()) == merged
        assert len(batch.inputs) == NUM_ROWS
        for pictures in batch.pictures:
            assert pictures.patches.shape[:2] == pictures.labels.shape[:2]
            assert pictures.words.shape[1] == pictures.patches.shape[1] // 4
            assert bool((pictures.words[..., 0] >= 0).all())
            assert pictures.grid[0] * pictures.grid[1] == pictures.patches.shape[1]


def test_every_scene_is_asked_about() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(400):
        rng = random.Random(seed)
        turns = still_turns(still_scene(rng), rng, EVERYTHING)
        assert turns
        assert len({asked.question for asked in turns}) == len(turns)
        kinds.update(asked.kind for asked in turns)
    assert set(kinds) == {*STILL_KINDS, "beyond"}


def test_what_is_to_be_said_are_answers(tokenizer: Tokenizer) -> None:
    end = tokenizer.token_to_id(MESSAGE_END)
    batch = Batches(tokenizer, seed=0, num_rows=NUM_ROWS).batch(LATE)
    for inputs, labels in zip(batch.inputs, batch.labels, strict=True):
        places = (labels != -100).nonzero().flatten()
        inside = places[:-1][places.diff() == 1]
        assert torch.equal(labels[inside], inputs[inside + 1])
        assert int(labels[places[-1]]) == end
        # In front of each answer stands the assistant's header.
        starts = places[torch.cat([torch.tensor([True]), places.diff() > 1])]
        for start in starts.tolist():
            header = tokenizer.decode(inputs[: start + 1].tolist(), skip_special_tokens=False)
            assert header.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize("grid", [*STILL_CELLS, *CLIP_CELLS])
@pytest.mark.parametrize("system", ["", SYSTEMS[0]])
def test_prompts_are_those_of_template_and_processors(
    folder: Path, tokenizer: Tokenizer, grid: tuple[int, int], system: str
) -> None:
    rng = random.Random(str(grid))
    height, width = grid[0] * CELL, grid[1] * CELL
    scene = drawn_scene(rng)
    picture = draw(scene, height, width, rng)
    config = read_vision_config(folder)
    item = image_item(picture, config.image)
    values = np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)
    np.testing.assert_allclose(merged_patches([picture] * DEPTH), values, atol=1e-6)

    clip_frames = [draw(replace(scene, things=()), height, width, rng) for _ in range(6)]
    times = [index * FRAME_S for index in range(6)]
    video = prepare_frames(clip_frames, times, config.video)
    shown = [np.frombuffer(each.features.data, "<f4").reshape(each.features.shape) for each in video.items]
    if grid in CLIP_CELLS:
        for first, found in enumerate(shown):
            expected = merged_patches(clip_frames[DEPTH * first : DEPTH * (first + 1)])
            np.testing.assert_allclose(expected, found, atol=1e-6)

    text, tokens = TextTokenizer.from_folder(folder), read_vision_tokens(folder)
    dialogues = Dialogues(tokenizer)
    template = AutoTokenizer.from_pretrained(folder)
    head = [{"role": "system", "content": system}] if system else []
    for kind, media, given in (
        ("image", dialogues.image(grid), ([item], [])),
        ("video", dialogues.video(grid, frame_times(6)), ([], [video])),
    ):
        if kind == "video" and grid not in CLIP_CELLS:
            continue
        content = [{"type": kind}, {"type": "text", "text": "What do you see?"}]
        written = template.apply_chat_template(
            [*head, {"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        expanded = expand(written, text, tokens, *given).expanded
        assert dialogues.prompt("What do you see?", media, system) == list(expanded.token_ids)


def test_a_dialogue_goes_on_as_the_template_writes_it(folder: Path, tokenizer: Tokenizer) -> None:
    turns = [
        SceneQuestion("color", "What color is the star?", "Red."),
        SceneQuestion("count", "How many things?", "One."),
    ]
    row = Dialogues(tokenizer).row([Part(turns)])
    messages = [
        {"role": role, "content": text}
        for asked in turns
        for role, text in (("user", asked.question), ("assistant", asked.answer))
    ]
    template = AutoTokenizer.from_pretrained(folder)
    written = template.apply_chat_template(messages, tokenize=False)
    whole = [*row.inputs, row.labels[-1]]
    assert tokenizer.decode(whole, skip_special_tokens=False) == written.removesuffix("\n")


def test_what_a_live_session_shows_is_a_message_of_its_own(folder: Path, tokenizer: Tokenizer) -> None:
    dialogues = Dialogues(tokenizer)
    asked, seen = SceneQuestion("color", "What color is the star?", "Red."), dialogues.video((3, 3), [1.5])
    row = dialogues.row([Part([asked], seen, [(3, 3)], alone=True)])
    messages = [
        {"role": "user", "content": [{"type": "video"}]},
        {"role": "user", "content": asked.question},
        {"role": "assistant", "content": asked.answer},
    ]
    written = AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=False)
    shown = tokenizer.decode([*row.inputs, row.labels[-1]], skip_special_tokens=False)
    pads = tokenizer.decode(seen[1:-1], skip_special_tokens=False)
    assert shown == written.replace("<|video_pad|>", pads).removesuffix("\n")


def test_lessons_follow_each_other_and_teach_what_they_weigh(tokenizer: Tokenizer) -> None:
    assert [lesson.until for lesson in LESSONS] == sorted({lesson.until for lesson in LESSONS})
    assert lesson_at(0) is LESSONS[0]
    assert lesson_at(int(LESSONS[0].until)) is LESSONS[1]
    assert lesson_at(10**9) is LESSONS[-1]
    rng = random.Random(0)
    for _ in range(60):
        scene = drawn_scene(rng, num_things=2)
        kinds = [asked.kind for asked in still_turns(scene, rng, LESSONS[0])]
        assert set(kinds) <= {*LESSONS[0].weights, "beyond"}
        assert max(Counter(kinds)[kind] for kind in LISTING) <= 1
