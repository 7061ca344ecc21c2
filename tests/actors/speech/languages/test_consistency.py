"""Whether a language holds in both halves: asked of the whole and of each half, side by side."""

from __future__ import annotations

import pytest
import trio
from sensorium.actors.speech.languages.consistency import Positions, language_with_halves
from sensorium.media.transcript.range_answer import DetectedLanguage
from sensorium.protocols.errors import OverloadedError

WHOLE = DetectedLanguage("en", 0.95, is_speech=True)


@pytest.mark.parametrize(
    ("first", "second", "in_halves"),
    [
        (("en", 0.9), ("en", 0.8), 0.8),
        (("en", 0.6), ("en", 0.99), 0.6),
        (("de", 0.4), ("en", 0.99), 0.0),
        (("en", 0.9), ("de", 0.99), 0.0),
    ],
)
async def test_the_less_sure_half_counts(
    first: tuple[str, float], second: tuple[str, float], in_halves: float
) -> None:
    halves = {None: WHOLE, (0, 7): DetectedLanguage(*first), (7, 15): DetectedLanguage(*second)}
    asked: list[Positions | None] = []

    async def ask(span: Positions | None) -> DetectedLanguage:
        asked.append(span)
        while len(asked) < len(halves):
            await trio.lowlevel.checkpoint()
        return halves[span]

    found = await language_with_halves(ask, 15)
    assert (found.code, found.probability, found.in_halves) == ("en", 0.95, in_halves)


async def test_an_error_is_that_of_the_question() -> None:
    async def ask(span: Positions | None) -> DetectedLanguage:
        await trio.lowlevel.checkpoint()
        raise OverloadedError("try again")

    with pytest.raises(OverloadedError):
        await language_with_halves(ask, 15)
