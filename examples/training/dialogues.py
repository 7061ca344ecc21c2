"""Dialogues about pictures and clips in tokens, exactly as the chat template and the processors write them.

What is asked is the business of `tiny_qwen3_vl_data.py`, which makes batches of them, and of the evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from checkpoint_files import MESSAGE_END, MESSAGE_START, Encoder
from question_forms import SceneQuestion
from tiny_qwen3_vl_model import IMAGE_PAD, VIDEO_PAD, VISION_END, VISION_START
from tokenizers import Tokenizer

MAX_LENGTH: Final = 176
"""Tokens of a row; a turn that would pass it is left out."""


@dataclass(frozen=True, slots=True)
class Row:
    """A dialogue in tokens: `labels` are -100 where nothing is to be said; `grids` are the sizes in tokens
    of the pictures in it, down and across, in order."""

    inputs: list[int]
    labels: list[int]
    grids: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is looked at, if anything is, and the questions about it. `alone`: it is a message of
    its own, as what a live session saw is."""

    turns: Sequence[SceneQuestion]
    media: list[int] = field(default_factory=list)
    grids: Sequence[tuple[int, int]] = ()
    alone: bool = False


class Dialogues:
    """Dialogues as tokens, exactly as the chat template and the processors of the exported folder write
    them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        encoder = Encoder(tokenizer)
        self._encoded, self._ids = encoder.encoded, encoder.ids
        self.pads = {*self._ids(IMAGE_PAD), *self._ids(VIDEO_PAD)}

    def row(self, parts: Sequence[Part], system: str = "", max_length: int = MAX_LENGTH) -> Row:
        """The parts' turns behind each other, as many as fit; what a part shows stands in front of its first
        question."""
        inputs = self._system(system)
        labels = [-100] * len(inputs)
        grids: list[tuple[int, int]] = []
        for part in parts:
            grids += part.grids
            for index, turn in enumerate(part.turns):
                question = self._question(turn.question, [] if index else part.media, alone=part.alone)
                answer = [*self._encoded(turn.answer), *self._ids(MESSAGE_END)]
                if index and len(inputs) + len(question) + len(answer) > max_length:
                    continue
                inputs += [*question, *answer, *self._ids("\n")]
                labels += [*([-100] * len(question)), *answer, -100]
        # What follows each input is to be said; behind the last answer nothing is.
        return Row(inputs[:-2], labels[1:-1], grids)

    def prompt(self, question: str, media: list[int], system: str = "") -> list[int]:
        """The first question, to be answered."""
        return self._system(system) + self._question(question, media)

    def image(self, grid: tuple[int, int]) -> list[int]:
        """A picture's tokens."""
        return self._ids(VISION_START) + self._ids(IMAGE_PAD) * (grid[0] * grid[1]) + self._ids(VISION_END)

    def video(self, grid: tuple[int, int], times_s: Sequence[float]) -> list[int]:
        """A clip's tokens: each temporal patch stands behind its time."""
        ids: list[int] = self._ids(VISION_START)
        for time_s in times_s:
            ids += [*self._encoded(f"<{time_s:.1f} seconds>"), *self._ids(VISION_START)]
            ids += [*(self._ids(VIDEO_PAD) * (grid[0] * grid[1])), *self._ids(VISION_END)]
        return ids + self._ids(VISION_END)

    def _system(self, text: str) -> list[int]:
        if not text:
            return []
        return [*self._ids(MESSAGE_START, "system\n"), *self._encoded(text), *self._ids(MESSAGE_END, "\n")]

    def _question(self, text: str, media: list[int], *, alone: bool = False) -> list[int]:
        head = [*self._ids(MESSAGE_START, "user\n"), *media]
        if alone and media:
            head += self._ids(MESSAGE_END, "\n", MESSAGE_START, "user\n")
        head += self._encoded(text)
        return head + self._ids(MESSAGE_END, "\n", MESSAGE_START, "assistant\n")


def rotary_positions(row: Row, pads: set[int]) -> npt.NDArray[np.int64]:
    """Of each input in time, height and width: text counts up in all three, a picture is a grid, and what
    follows it begins behind its longer side; [3, length]."""
    positions = np.zeros((3, len(row.inputs)), np.int64)
    grids = iter(row.grids)
    place = at = 0
    while at < len(row.inputs):
        if row.inputs[at] not in pads:
            positions[:, at] = place
            place, at = place + 1, at + 1
            continue
        rows, columns = next(grids)
        down, across = np.divmod(np.arange(rows * columns), columns)
        positions[:, at : at + rows * columns] = place + np.stack([0 * down, down, across])
        place, at = place + max(rows, columns), at + rows * columns
    return positions
