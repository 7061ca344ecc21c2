"""A set of engines can stand behind one client: what chooses one crosses the seam, and so does leaving it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from sensorium.actors.inference.client import whole_answer
from sensorium.protocols.engine.messages import SessionKey
from support.fake_engine import STEP_S, counted, make_fake_engine, request
from support.fake_runner import answer_alone, item
from support.remote_engine import Connection
from support.replicas import Replicas
from trio.testing import MockClock

PROMPTS = {"s": tuple(range(1, 13)), "t": tuple(range(20, 32))}


@pytest.fixture
async def replicas(nursery: trio.Nursery) -> AsyncIterator[Replicas]:
    """An engine of this process and one across a line."""
    here, there = make_fake_engine(), make_fake_engine()
    connection = Connection(there)
    for run in (here.run, there.run, connection.run):
        await nursery.start(run)
    yield Replicas([here, connection.remote])
    await trio.sleep(STEP_S)
    for engine in (here, connection.remote):
        statistics = await counted(engine)
        assert (statistics.num_running, statistics.num_sessions_parked) == (0, 0)


async def test_a_session_stays_at_its_place_until_it_leaves(
    autojump_clock: MockClock, replicas: Replicas
) -> None:
    async def ask(session: str, number: int) -> None:
        prompt = (*PROMPTS[session], *range(40, 40 + number))
        each = request(f"{session}{number}", prompt, session=session, max_tokens=3)
        async with replicas.placed((), session, prompt) as place:
            answer = await whole_answer(place, each)
        assert answer.token_ids == answer_alone(each)[0]
        assert (answer.num_cached >= len(PROMPTS[session])) == (number > 0)

    for number in range(3):
        async with trio.open_nursery() as nursery:
            for session in PROMPTS:
                nursery.start_soon(ask, session, number)
    assert sorted(replicas.by_key.values()) == [0, 1]
    assert [(await counted(each)).num_sessions_parked for each in replicas.engines] == [1, 1]
    gone = replicas.by_key["s"]
    replicas.close_session(SessionKey("s"))
    await trio.sleep(STEP_S)
    parked = [(await counted(each)).num_sessions_parked for each in replicas.engines]
    assert parked[gone] == 0
    assert parked[1 - gone] == 1
    assert replicas.by_key.keys() == {"t"}
    replicas.close_session(SessionKey("t"))


async def test_a_prompt_without_a_key_goes_where_its_prefix_is_cached(
    autojump_clock: MockClock, replicas: Replicas
) -> None:
    cached = {}
    for name, prompt in (("s", PROMPTS["s"]), ("t", PROMPTS["t"]), ("t2", (*PROMPTS["t"], 9, 9))):
        async with replicas.placed(prompt_token_ids=prompt) as place:
            cached[name] = (await whole_answer(place, request(name, prompt))).num_cached
    assert cached == {"s": 0, "t": 0, "t2": len(PROMPTS["t"])}
    assert [(await counted(each)).num_prefill_tokens for each in replicas.engines] == [12, 14]


async def test_features_go_to_the_place_that_needs_them(
    autojump_clock: MockClock, replicas: Replicas
) -> None:
    for name in ("first", "second"):
        for session, sound in (("s", "A"), ("t", "B")):
            async with replicas.placed([item(sound)], session, PROMPTS[session]) as place:
                each = request(f"{name} {session}", PROMPTS[session], on=sound)
                assert (await whole_answer(place, each)).token_ids == answer_alone(each)[0]
    assert [(await counted(each)).num_windows_encoded for each in replicas.engines] == [1, 1]
