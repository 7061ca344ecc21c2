"""Engines behind one client: sessions stay, prompts go where they are known, what is lost moves on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from sensorium.actors.engine_process.client import RemoteEngine
from sensorium.actors.inference.client import Place, whole_answer
from sensorium.actors.replicas.client import ReplicatedEngine
from sensorium.actors.replicas.router import BLOCK
from sensorium.actors.runtime.supervisor import Health
from sensorium.protocols.engine.messages import RequestId, SampleRequest, SessionKey, TextGenerated
from sensorium.protocols.errors import UnavailableError
from support.fake_engine import STEP_S, counted, expect_all_free, make_fake_engine, request
from support.fake_runner import answer_alone, item
from support.remote_engine import Connection
from trio.testing import MockClock

STARTS = (("s", 0), ("t", 7))
PROMPTS = {"s": tuple(range(1, 13)), "t": tuple(range(20, 32))}


@pytest.fixture
async def replicas(nursery: trio.Nursery) -> AsyncIterator[ReplicatedEngine]:
    """An engine of this process and one across a line."""
    here, there = make_fake_engine(), make_fake_engine()
    connection = Connection(there)
    for run in (here.run, there.run, connection.run):
        await nursery.start(run)
    yield ReplicatedEngine("fake", [here, connection.remote], block_size=4)
    await trio.sleep(STEP_S)
    for engine in (here, connection.remote):
        statistics = await counted(engine)
        assert (statistics.num_running, statistics.num_sessions_parked) == (0, 0)


async def test_a_session_stays_at_its_place_until_it_leaves(
    autojump_clock: MockClock, replicas: ReplicatedEngine
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
    router = replicas.router
    assert sorted(router.num_keys(place) for place in (0, 1)) == [1, 1]
    assert [(await counted(each)).num_sessions_parked for each in replicas.engines] == [1, 1]
    gone = router.place_of("s")
    assert gone is not None
    replicas.close_session(SessionKey("s"))
    await trio.sleep(STEP_S)
    parked = [(await counted(each)).num_sessions_parked for each in replicas.engines]
    assert parked[gone] == 0
    assert parked[1 - gone] == 1
    assert (router.place_of("s"), router.place_of("t")) == (None, 1 - gone)
    replicas.close_session(SessionKey("t"))


async def test_a_prompt_without_a_key_goes_where_its_prefix_is_cached(
    autojump_clock: MockClock, replicas: ReplicatedEngine
) -> None:
    long = {
        name: tuple(number % 48 + 1 for number in range(first, first + BLOCK + 3)) for name, first in STARTS
    }
    cached = {}
    for name, prompt in (("s", long["s"]), ("t", long["t"]), ("t2", (*long["t"], 9, 9)), ("s2", long["s"])):
        async with replicas.placed(prompt_token_ids=prompt) as place:
            cached[name] = (await whole_answer(place, request(name, prompt))).num_cached
    assert cached["s"] == cached["t"] == 0
    assert min(cached["s2"], cached["t2"]) >= BLOCK


async def test_features_go_to_the_place_that_needs_them(
    autojump_clock: MockClock, replicas: ReplicatedEngine
) -> None:
    for name in ("first", "second"):
        for session, sound in (("s", "A"), ("t", "B")):
            async with replicas.placed([item(sound)], session, PROMPTS[session]) as place:
                each = request(f"{name} {session}", PROMPTS[session], on=sound)
                assert (await whole_answer(place, each)).token_ids == answer_alone(each)[0]
    assert [(await counted(each)).num_windows_encoded for each in replicas.engines] == [1, 1]


class Lost(Place):
    """A place whose engine is gone after it gave `num_given` texts."""

    def __init__(self, num_given: int) -> None:
        self.num_given = num_given

    @asynccontextmanager
    async def run(self, request: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        yield self._texts()

    async def _texts(self) -> AsyncIterator[TextGenerated]:
        for _ in range(self.num_given):
            yield TextGenerated(RequestId("a"), (1,))
        raise UnavailableError("gone", code="engine_lost")


class LosingEngine(RemoteEngine):
    """Says that it is ready, and is lost whenever it is asked."""

    num_given = 0
    num_asked = 0

    @property
    def health(self) -> Health:
        return "ready"

    @asynccontextmanager
    async def placed(self, *_: Any, **__: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        self.num_asked += 1
        yield Lost(self.num_given)


def losing(num_given: int) -> LosingEngine:
    engine = LosingEngine("fake", 0, lambda: "restarting", lambda: 1.0)
    engine.num_given = num_given
    return engine


async def texts_of(client: ReplicatedEngine, each: SampleRequest) -> list[str]:
    async with client.placed() as place, place.run(each) as run:
        return [text.text async for text in run]


async def test_what_has_said_nothing_begins_again_elsewhere(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    here = make_fake_engine()
    await nursery.start(here.run)
    gone = losing(0)
    client = ReplicatedEngine("fake", [gone, here])
    alone = await texts_of(ReplicatedEngine("fake", [here]), request("alone"))
    assert await texts_of(client, request("a")) == alone
    assert gone.num_asked == 1
    await expect_all_free(here)


async def test_what_was_begun_ends_with_the_loss(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    here = make_fake_engine()
    await nursery.start(here.run)
    client = ReplicatedEngine("fake", [losing(2), here])
    with pytest.raises(UnavailableError, match="gone") as lost:
        await texts_of(client, request("a"))
    assert lost.value.code == "engine_lost"
    assert (await counted(here)).num_steps == 0


async def test_it_moves_once_only() -> None:
    """Or a request that ends its process would end all of them."""
    engines = [losing(0) for _ in range(4)]
    with pytest.raises(UnavailableError, match="gone"):
        await texts_of(ReplicatedEngine("fake", engines), request("a"))
    assert sum(engine.num_asked for engine in engines) == 2


async def test_none_is_ready() -> None:
    client = ReplicatedEngine("fake", [make_fake_engine(), make_fake_engine()])
    assert client.health == "starting"
    with pytest.raises(UnavailableError, match="the model fake is starting"):
        await texts_of(client, request("a"))


async def test_what_is_drained_is_asked_only_if_there_is_no_other() -> None:
    drained = {0}
    engines = [losing(0), losing(0)]
    client = ReplicatedEngine("fake", engines, is_drained=drained.__contains__)
    assert client.available() == [1]
    drained.add(1)
    assert client.available() == [0, 1]
