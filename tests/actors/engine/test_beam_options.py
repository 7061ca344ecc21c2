"""What a client may say of several answers reaches their search, through an engine."""

from __future__ import annotations

import trio
from support.beam_requests import beams, expect_answer, expect_nothing_held
from support.fake_engine import make_fake_engine
from trio.testing import MockClock

PROMPTS = ((1, 2, 3), (4,), tuple(range(24, 35)), (5, 6, 9, 8), (20, 21))


async def test_longer_answers_may_be_favoured_and_a_search_end_sooner(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Both options change some answers, and each is that of the search with them."""
    engine = make_fake_engine()
    await nursery.start(engine.run)
    told: list[list[tuple[int, ...]]] = []
    for length_penalty, patience in [(1.0, 1.0), (0.0, 1.0), (4.0, 1.0), (1.0, 0.5)]:
        told.append([])
        for prompt in PROMPTS:
            asked = beams("r", 2, prompt=prompt, length_penalty=length_penalty, patience=patience)
            answer = await engine.complete(asked)
            expect_answer(answer, asked)
            told[-1].append(answer.token_ids)
    usual, short, long, hasty = told
    assert short != usual
    assert sum(map(len, short)) < sum(map(len, long))
    assert hasty != usual
    await expect_nothing_held(engine)
