"""Whether a range is in one language all through: of a whole, what was said first or last mostly decides.

One encoding answers for all of it and for its halves, at the price of two more rows of a decoder step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from ....media.transcript.range_answer import DetectedLanguage
from ...runtime.nursery import all_of

Positions = tuple[int, int]
"""Of an encoding, from the first to before the second."""


async def language_with_halves(
    detect: Callable[[Positions | None], Awaitable[DetectedLanguage]], num_positions: int
) -> DetectedLanguage:
    """The language of a range of so many positions, and how sure that is in either half of it."""
    middle = num_positions // 2
    whole, *halves = await all_of(detect, (None, (0, middle), (middle, num_positions)))
    sure = (half.probability if half.code == whole.code else 0.0 for half in halves)
    return replace(whole, in_halves=min(sure))
