"""Where the tokens of a prompt lie on a model's rotary axes: a family's business, and its rule's type here.

A family whose positions are not the tokens' own indices gives a rule (`ModelSource.positions`), which
`SchedulerConfig` carries; `engine/planning/request.py` asks for the rows of each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...protocols.engine.messages import MediaSpan

Axes = tuple[tuple[int, ...], ...]
"""Of some tokens in a row, as many axes as the model has: of most models time, height, width."""


class TokenPositions(Protocol):
    """Positions of the tokens of one prompt, and of the answer behind it."""

    def rows(self, start: int, num_rows: int) -> Axes:
        """The axes of tokens `start` to `start + num_rows`."""


PositionRule = Callable[[Sequence[MediaSpan]], TokenPositions | None]
"""Positions of a prompt with such items; None if every token's position is its index on all axes."""


def plain_positions(_: Sequence[MediaSpan]) -> None:
    """Every token's position is its index."""
