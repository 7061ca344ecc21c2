"""How often tiny-qwen3-vl answers right: every kind of question, about pictures it was never trained on.

By `transformers`, greedy, on the exported folder. An answer is right if it is the right one letter for
letter. "Held out" are pictures and clips with a combination of colour and shape, a number or a word in a
colour that no training picture has; "known" are fresh ones of the combinations it was trained on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import torch
from clip_questions import CLIP_KINDS, MAX_SHORT, NUM_FRAMES, ClipKind, drawn_clip, make_clip_question
from dialogues import Dialogues
from drawing import draw, draw_clip
from lessons import CLIP_CELLS, STILL_CELLS
from question_forms import SceneQuestion
from scenes import Scene, drawn_scene, drawn_sign
from small_talk import TALK_KINDS, beyond, talk
from still_questions import STILL_KINDS, StillKind, make_still_question
from tiny_qwen3_vl_data import frame_times, merged_patches
from tiny_qwen3_vl_model import CELL, DEPTH, MERGE
from tokenizers import Tokenizer
from transformers import Qwen3VLForConditionalGeneration

MAX_NEW_TOKENS: Final = 200
Patches = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of which picture or clip; `patches` and `times_s` are empty where nothing is shown, and
    `times_s` where it is a picture."""

    turn: SceneQuestion
    patches: tuple[Patches, ...] = ()
    grid: tuple[int, int] = (0, 0)
    times_s: tuple[float, ...] = ()


class Respondent:
    """The exported folder in `transformers`, one question at a time."""

    def __init__(self, folder: Path) -> None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer = tokenizer
        self._dialogues = Dialogues(tokenizer)
        model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self._model = cast(Any, model).eval()

    def answer(self, question: Question) -> str:
        """What it says."""
        media, inputs = self._shown(question)
        prompt = self._dialogues.prompt(question.turn.question, media)
        if question.patches:
            config = self._model.config
            ids = torch.tensor([prompt])
            kinds = (ids == config.image_token_id).int() + 2 * (ids == config.video_token_id).int()
            inputs["mm_token_type_ids"] = kinds
        with torch.no_grad():
            output = self._model.generate(
                input_ids=torch.tensor([prompt]), max_new_tokens=MAX_NEW_TOKENS, do_sample=False, **inputs
            )
        return self._tokenizer.decode(output[0, len(prompt) :].tolist())

    def _shown(self, question: Question) -> tuple[list[int], dict[str, torch.Tensor]]:
        if not question.patches:
            return [], {}
        pixels = torch.from_numpy(np.concatenate(question.patches))
        size = torch.tensor([[len(question.patches), question.grid[0] * MERGE, question.grid[1] * MERGE]])
        if not question.times_s:
            return self._dialogues.image(question.grid), {"pixel_values": pixels, "image_grid_thw": size}
        media = self._dialogues.video(question.grid, question.times_s)
        return media, {"pixel_values_videos": pixels, "video_grid_thw": size}


def still_question(kind: StillKind, rng: random.Random, *, held_out: bool) -> Question:
    """A question of the kind about a fresh picture."""
    while True:
        match kind:
            case "unknown":
                scene = Scene("gray", texture=True)
            case "read" | "sign color":
                scene = drawn_sign(rng, held_out=held_out)
            case _:
                scene = drawn_scene(rng, held_out=held_out)
        turn = make_still_question(kind, scene, rng)
        if turn is not None:
            break
    grid = rng.choice(STILL_CELLS)
    frame = draw(scene, grid[0] * CELL, grid[1] * CELL, rng)
    return Question(turn, (merged_patches([frame] * DEPTH),), grid)


def clip_question(kind: ClipKind, rng: random.Random, *, held_out: bool) -> Question:
    """A question of the kind about a fresh clip."""
    grid, num_frames = (
        rng.choice(CLIP_CELLS),
        rng.choice([n for n in NUM_FRAMES if n > MAX_SHORT] if kind == "order" else NUM_FRAMES),
    )
    while True:
        clip = drawn_clip(rng, num_frames, held_out=held_out)
        turn = make_clip_question(kind, clip, rng)
        if turn is not None:
            break
    frames = draw_clip(clip, num_frames, grid[0] * CELL, grid[1] * CELL, rng)
    starts = range(0, num_frames, DEPTH)
    patches = tuple(merged_patches(frames[first : first + DEPTH]) for first in starts)
    return Question(turn, patches, grid, tuple(frame_times(num_frames)))


def beyond_question(rng: random.Random) -> Question:
    """What no picture of ours can answer."""
    shown = still_question("ground", rng, held_out=False)
    return Question(beyond(rng), shown.patches, shown.grid)


def evaluate(folder: Path, count: int, seed: int) -> str:
    """The table of figures the model card quotes; `count` questions of each kind."""
    respondent = Respondent(folder)
    lines = [f"{'kind':12s} {'number':>6s} held out   known"]
    totals: dict[str, list[float]] = {"stills": [0.0, 0.0], "motion": [0.0, 0.0]}
    groups: tuple[tuple[str, tuple[str, ...]], ...] = (("stills", STILL_KINDS), ("motion", CLIP_KINDS))
    for group, kinds in groups:
        for kind in kinds:
            shares = [
                _share_right(respondent, kind, count, seed, held_out=held_out) for held_out in (True, False)
            ]
            lines.append(f"{kind:12s} {count:6d} {shares[0]:8.1%}{shares[1]:8.1%}")
            for index, share in enumerate(shares):
                totals[group][index] += share / len(kinds)
    lines += [f"{name:12s}        {held:8.1%}{known:8.1%}" for name, (held, known) in totals.items()]
    rng = random.Random(f"{seed}/talk")
    talks = [Question(talk(kind, rng)) for kind in TALK_KINDS for _ in range(3)]
    talks += [beyond_question(rng) for _ in range(count)]
    right = sum(respondent.answer(question) == question.turn.answer for question in talks)
    lines.append(f"{'talk':12s} {len(talks):6d} {'':8s}{right / len(talks):8.1%}")
    return "\n".join(lines)


def _share_right(respondent: Respondent, kind: str, count: int, seed: int, *, held_out: bool) -> float:
    right = 0
    for index in range(count):
        rng = random.Random(f"{seed}/question/{kind}/{held_out}/{index}")
        if kind in STILL_KINDS:
            question = still_question(kind, rng, held_out=held_out)
        else:
            assert kind in CLIP_KINDS, "a kind is of stills or of clips"
            question = clip_question(kind, rng, held_out=held_out)
        right += respondent.answer(question) == question.turn.answer
    return right / count
