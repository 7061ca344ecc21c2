"""Training batches of tiny-qwen3-vl: pictures and clips, drawn when needed, with a dialogue about each.

What a batch has depends on seed and number alone, not on how often training was stopped. Its rows are stills
of one size, then clips of one size and length, then talk without pictures. `Dialogues` makes the rows; the
answers of `still_questions.py`, `clip_questions.py` and `small_talk.py` are all they learn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from clip_questions import CLIP_KINDS, drawn_clip, make_clip_question
from dialogues import Dialogues, Part, Row, rotary_positions
from drawing import Pixels, draw, draw_clip, patch_labels
from lessons import Lesson, lesson_at
from question_forms import SceneQuestion
from scenes import Clip, Scene, drawn_scene, drawn_sign
from small_talk import TALK_KINDS, beyond, talk
from still_questions import STILL_KINDS, StillKind, make_still_question
from tiny_qwen3_vl_model import (
    CELL,
    DEPTH,
    MERGE,
    PATCH,
    Pictures,
    VlBatch,
)
from token_words import TokenWords
from tokenizers import Tokenizer

SIGN_SHARE, TEXTURE_SHARE = 0.18, 0.03
MAX_CLIP_TURNS: Final = 5
LISTING: Final = frozenset(("describe", "json"))
"""Kinds of questions whose answers say everything, so that what follows them need not look."""
BEYOND_SHARE: Final = 0.04
SYSTEM_SHARE: Final = 0.2
SYSTEMS: Final = (
    "You are a helpful assistant.",
    "You look at pictures and answer questions.",
    "Answer briefly.",
    "You are tiny-qwen3-vl.",
)
FRAME_S: Final = 0.5
"""Between the frames of a clip that are looked at."""
LIVE_S: Final = 90.0
"""How old a live session may be when it sees something."""


class Batches:
    """The batch of every number."""

    def __init__(self, tokenizer: Tokenizer, *, seed: int, num_rows: int, num_processes: int = 1) -> None:
        self._dialogues = Dialogues(tokenizer)
        self._words = TokenWords(tokenizer)
        self._pads = self._dialogues.pads
        self._seed = seed
        self._num_rows = num_rows
        self._num_processes = num_processes

    def batch(self, number: int) -> VlBatch:
        """Depends on seed and number alone; the number of processes says of which step it is."""
        rng = random.Random(f"{self._seed}/vl batch/{number}")
        lesson = lesson_at(number // self._num_processes)
        num_stills = round(lesson.still_share * self._num_rows)
        num_clips = round(lesson.clip_share * self._num_rows)
        pictures: list[Pictures] = []
        rows: list[Row] = []
        for make, count in ((self._stills, num_stills), (self._clips, num_clips)):
            if count:
                made = make(rng, lesson, count)
                pictures.append(made[0])
                rows += made[1]
        for _ in range(self._num_rows - num_stills - num_clips):
            turns = [talk(rng.choice(TALK_KINDS), rng) for _ in range(rng.randint(1, 5))]
            rows.append(self._dialogues.row([Part(turns)], _system(rng)))
        return collate(pictures, rows, self._pads)

    def _stills(self, rng: random.Random, lesson: Lesson, count: int) -> tuple[Pictures, list[Row]]:
        grid = rng.choice(lesson.still_cells)
        height, width = grid[0] * CELL, grid[1] * CELL
        patches, labels, words, rows = [], [], [], []
        for _ in range(count):
            parts: list[Part] = []
            for _ in range(2 if rng.random() < lesson.two_share else 1):
                scene = still_scene(rng, counts=lesson.counts)
                frame = draw(scene, height, width, rng)
                patches.append(merged_patches([frame] * DEPTH))
                labels.append(merge_order(patch_labels(scene, height, width, PATCH)))
                words.append(self._words.labels(scene, grid, labels[-1]))
                is_live = rng.random() < lesson.live_share
                media = (
                    self._dialogues.video(grid, [live_time(rng)]) if is_live else self._dialogues.image(grid)
                )
                parts.append(Part(still_turns(scene, rng, lesson), media, [grid], is_live))
            if len(parts) > 1:
                parts[0] = replace(parts[0], turns=parts[0].turns[: rng.randint(1, 3)])
            rows.append(self._dialogues.row(parts, _system(rng), lesson.max_length))
        return _pictures(patches, grid, labels, words), rows

    def _clips(self, rng: random.Random, lesson: Lesson, count: int) -> tuple[Pictures, list[Row]]:
        grid, num_frames = rng.choice(lesson.clip_cells), rng.choice(lesson.clip_frames)
        height, width = grid[0] * CELL, grid[1] * CELL
        patches, labels, words, rows = [], [], [], []
        for _ in range(count):
            clip = drawn_clip(rng, num_frames)
            frames = draw_clip(clip, num_frames, height, width, rng)
            for first in range(0, num_frames, DEPTH):
                patches.append(merged_patches(frames[first : first + DEPTH]))
                scene = clip.at(first / (num_frames - 1))
                labels.append(merge_order(patch_labels(scene, height, width, PATCH)))
                words.append(self._words.labels(scene, grid, labels[-1]))
            is_live = rng.random() < lesson.live_share
            first_s = live_time(rng) if is_live else 0.0
            times = frame_times(num_frames, first_s)
            media = self._dialogues.video(grid, times)
            part = Part(clip_turns(clip, rng), media, [grid] * len(times), is_live)
            rows.append(self._dialogues.row([part], _system(rng), lesson.max_length))
        return _pictures(patches, grid, labels, words), rows


def frame_times(num_frames: int, first_s: float = 0.0) -> list[float]:
    """The time of each temporal patch of a clip that begins at `first_s`: the mean of its frames'."""
    return [first_s + (first + (DEPTH - 1) / 2) * FRAME_S for first in range(0, num_frames, DEPTH)]


def live_time(rng: random.Random) -> float:
    """Seconds since a live session saw its first frame."""
    return 0.0 if rng.random() < 0.3 else rng.uniform(0, LIVE_S)


def still_scene(rng: random.Random, *, held_out: bool = False, counts: Sequence[int] = ()) -> Scene:
    """Things, so many as one of the counts says, a sign, or what has no name."""
    draw = rng.random()
    if draw < SIGN_SHARE:
        return drawn_sign(rng, held_out=held_out)
    if draw > 1 - TEXTURE_SHARE and not held_out:
        return Scene("gray", texture=True)
    return drawn_scene(rng, held_out=held_out, num_things=rng.choice(counts) if counts else None)


def still_turns(scene: Scene, rng: random.Random, lesson: Lesson) -> list[SceneQuestion]:
    """Different questions, of the lesson's kinds as often as it wants them; what lists everything comes once,
    last or, where the lesson wants it, first."""
    turns: dict[str, SceneQuestion] = {}
    kinds = _kinds_of(scene)
    weights = [lesson.weights.get(kind, 0.0 if lesson.only_weighted else 1.0) for kind in kinds]
    for kind in rng.choices(kinds, weights, k=4 * lesson.max_turns):
        turn = make_still_question(kind, scene, rng)
        if turn is None or (kind in LISTING and any(other.kind == kind for other in turns.values())):
            continue
        turns.setdefault(turn.question, turn)
        if len(turns) == lesson.max_turns:
            break
    lists_first = lesson.list_first_share > 0 and rng.random() < lesson.list_first_share
    ordered = sorted(
        turns.values(),
        key=lambda turn: turn.kind in LISTING and len(scene.things) > 1,
        reverse=lists_first,
    )
    if rng.random() < BEYOND_SHARE:
        ordered.insert(rng.randint(0, len(ordered)), beyond(rng))
    return ordered


def _kinds_of(scene: Scene) -> Sequence[StillKind]:
    """What can be asked about such a scene."""
    if scene.texture:
        return ("unknown",)
    if scene.sign is not None:
        return ("read", "sign color", "ground")
    return [kind for kind in STILL_KINDS if kind not in {"unknown", "read", "sign color"}]


def clip_turns(clip: Clip, rng: random.Random) -> list[SceneQuestion]:
    """Several questions of different kinds."""
    turns = [turn for kind in CLIP_KINDS if (turn := make_clip_question(kind, clip, rng)) is not None]
    rng.shuffle(turns)
    if rng.random() < BEYOND_SHARE:
        turns.insert(0, beyond(rng))
    return turns[:MAX_CLIP_TURNS]


def merge_order(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[rows, columns, …] → [patches, …]: block by block of those that become one token."""
    rows, columns, *rest = values.shape
    blocks = values.reshape(rows // MERGE, MERGE, columns // MERGE, MERGE, *rest).swapaxes(1, 2)
    return blocks.reshape(rows * columns, *rest)


def merged_patches(frames: Sequence[Pixels]) -> npt.NDArray[np.float32]:
    """Frames of one temporal patch → [patches, values] in merge order, as the image processor gives them."""
    scaled = np.stack(frames).astype(np.float32) / 127.5 - 1
    depth, height, width, channels = scaled.shape
    split = (depth, height // CELL, MERGE, PATCH, width // CELL, MERGE, PATCH, channels)
    patches = scaled.reshape(split).transpose(1, 4, 2, 5, 7, 0, 3, 6)
    return patches.reshape(height * width // PATCH**2, -1)


def collate(pictures: Sequence[Pictures], rows: Sequence[Row], pads: set[int]) -> VlBatch:
    """The tensors of one step."""
    longest = max(len(row.inputs) for row in rows)
    shape = (len(rows), longest)
    inputs, labels = np.zeros(shape, np.int64), np.full(shape, -100, np.int64)
    positions = np.zeros((3, *shape), np.int64)
    for index, row in enumerate(rows):
        inputs[index, : len(row.inputs)] = row.inputs
        labels[index, : len(row.labels)] = row.labels
        positions[:, index, : len(row.inputs)] = rotary_positions(row, pads)
    return VlBatch(
        pictures,
        torch.from_numpy(inputs),
        torch.from_numpy(labels),
        torch.from_numpy(positions),
        torch.from_numpy(np.isin(inputs, list(pads))),
    )


def _pictures(
    patches: Sequence[npt.NDArray[np.float32]],
    grid: tuple[int, int],
    labels: Sequence[npt.NDArray[np.int64]],
    words: Sequence[npt.NDArray[np.int64]],
) -> Pictures:
    size = (grid[0] * MERGE, grid[1] * MERGE)
    stacked = (torch.from_numpy(np.stack(each)) for each in (patches, labels, words))
    pixels, lying, token_labels = stacked
    return Pictures(pixels, size, lying, token_labels)


def _system(rng: random.Random) -> str:
    return rng.choice(SYSTEMS) if rng.random() < SYSTEM_SHARE else ""
