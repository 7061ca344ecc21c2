"""What tiny-qwen3-vl is shown and asked at which step of its training: from easy pictures to all of them.

To find a thing by its name among others is learnt late where everything comes at once, and soon where there
are few things, few tokens and many questions whose answers cannot be guessed. `tiny_qwen3_vl_data.py` makes
batches of a lesson.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from clip_questions import NUM_FRAMES
from still_questions import StillKind

Cells = tuple[int, int]
STILL_CELLS: Final[tuple[Cells, ...]] = ((4, 4), (3, 3), (3, 4), (4, 3), (3, 5), (5, 3))
CLIP_CELLS: Final[tuple[Cells, ...]] = ((3, 3), (3, 4), (4, 3))
"""Tokens down and across."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is taught before step `until`.

    `counts` are drawn from for the number of things in a picture; `weights` say how often a kind of question
    is asked, others once or, with `only_weighted`, never. Rows that are neither stills nor clips are talk;
    `max_length` is in tokens.
    """

    until: float
    counts: tuple[int, ...]
    weights: Mapping[StillKind, float] = field(default_factory=dict)
    only_weighted: bool = False
    still_share: float = 0.6
    clip_share: float = 0.34
    still_cells: tuple[Cells, ...] = STILL_CELLS
    clip_cells: tuple[Cells, ...] = CLIP_CELLS
    clip_frames: tuple[int, ...] = NUM_FRAMES
    live_share: float = 0.0
    """Of what is shown: as a live session shows it, in a message of its own and as a clip."""
    two_share: float = 0.0
    """Of the stills' rows: with a second picture behind the first one's questions."""
    list_first_share: float = 0.0
    """Of what is shown: asked about all of it before, not behind, the other questions."""
    max_turns: int = 7
    max_length: int = 176


_LOOKING: Final[dict[StillKind, float]] = {
    "color": 3,
    "shape": 3,
    "size": 2,
    "where": 3,
    "at": 3,
    "describe": 3,
    "json": 1.5,
    "ground": 0.5,
    "count": 1,
    "read": 3,
    "sign color": 2,
    "unknown": 3,
}
"""Kinds that nobody can answer without looking."""
_HARD: Final[dict[StillKind, float]] = {
    "color": 1.5,
    "shape": 1.5,
    "size": 1,
    "where": 1.5,
    "at": 2,
    "describe": 4,
    "json": 3,
    "ground": 0.5,
    "count": 4,
    "exists": 2,
    "relation": 2.5,
    "beside": 2,
    "larger": 2,
    "absent": 2,
    "read": 4,
}
"""More of what is learnt late."""
_HARDEST: Final = _HARD | {"relation": 5, "beside": 4}
_THREE: Final[tuple[Cells, ...]] = ((3, 3), (3, 4), (4, 3))
LESSONS: Final = (
    Lesson(
        until=500,
        counts=(1, 1, 2),
        weights=_LOOKING,
        only_weighted=True,
        still_share=0.95,
        clip_share=0.0,
        still_cells=((3, 3),),
        max_length=128,
    ),
    Lesson(
        until=1300,
        counts=(1, 2, 2, 3),
        weights=_LOOKING,
        only_weighted=True,
        still_share=0.95,
        clip_share=0.0,
        still_cells=_THREE,
        max_length=128,
    ),
    Lesson(
        until=2300,
        counts=(1, 2, 2, 3, 3, 4),
        weights=_LOOKING,
        still_share=0.62,
        clip_share=0.34,
        still_cells=_THREE,
        clip_frames=(2, 4),
        live_share=0.25,
        max_length=144,
    ),
    Lesson(
        until=3760,
        counts=(1, 2, 2, 3, 3, 4, 4, 5),
        weights=_LOOKING | {"count": 4, "relation": 1.5, "larger": 1.5},
        live_share=0.3,
        two_share=0.15,
    ),
    Lesson(
        until=5500,
        counts=(1, 2, 2, 3, 3, 4, 4, 5),
        weights=_HARD,
        still_share=0.54,
        clip_share=0.42,
        live_share=0.3,
        two_share=0.12,
        list_first_share=0.4,
    ),
    Lesson(
        until=float("inf"),
        counts=(1, 2, 2, 3, 3, 4, 4, 5),
        weights=_HARDEST,
        still_share=0.4,
        clip_share=0.56,
        clip_frames=(2, 4, 6, 6, 8, 8),
        live_share=0.3,
        two_share=0.12,
        list_first_share=0.4,
    ),
)
EVERYTHING: Final = Lesson(float("inf"), (1, 2, 2, 3, 3, 4, 4, 5), _LOOKING)
"""What the tokenizer is built of; it stays as it is when lessons change."""


def lesson_at(step: int) -> Lesson:
    """The lesson of a step."""
    return next(lesson for lesson in LESSONS if step < lesson.until)
