"""Hashes first: features are asked of one who needs them, and only while the engine has not got them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import trio
from sensorium.actors.inference.client import Fetch, whole_answer
from sensorium.actors.inference.engine import Engine
from sensorium.protocols.engine.messages import ContentHash, Features, Lane
from sensorium.protocols.errors import OverloadedError, UnavailableError
from support.fake_engine import STEP_S, expect_all_free, make_fake_engine, request, run_whole
from support.fake_runner import CRASH_ID, answer_alone, item
from trio.testing import MockClock, wait_all_tasks_blocked


@pytest.fixture
async def engine(autojump_clock: MockClock, nursery: trio.Nursery) -> AsyncIterator[Engine]:
    """A ready engine with room for two items; afterwards nothing is held."""
    engine = make_fake_engine()
    await nursery.start(engine.run)
    yield engine
    await expect_all_free(engine)


class Client:
    """Holds items by name and notes what it is asked to send."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.supplied: list[str] = []

    def fetch(self, client: str, delay_s: float, error: Exception | None) -> Fetch:
        async def fetch(missing: Sequence[ContentHash]) -> Sequence[Features]:
            self.supplied += [f"{client}: {name}" for name in missing]
            await trio.sleep(delay_s)
            if error is not None:
                raise error
            return [item(name).features for name in missing]

        return fetch

    async def need(
        self, client: str, names: str, *, delay_s: float = 0.0, error: Exception | None = None
    ) -> None:
        items = [item(name).lean() for name in names]
        async with self.engine.placed(items, fetch=self.fetch(client, delay_s, error)) as place:
            for name in names:
                answer = await whole_answer(place, request(f"{client} {name}", on=name))
                assert answer.token_ids == answer_alone(request("any"), name.encode())[0]


async def test_only_the_first_is_asked(engine: Engine) -> None:
    client = Client(engine)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.need, "one", "A")
        await trio.sleep(STEP_S / 2)
        nursery.start_soon(client.need, "two", "AB")
        await trio.sleep(STEP_S / 4)
        nursery.start_soon(client.need, "three", "BA")
    assert client.supplied == ["one: A", "two: B"]
    await client.need("four", "AB")
    assert len(client.supplied) == 2
    assert engine.statistics().num_windows_encoded == 2


async def test_what_was_evicted_is_asked_for_again(engine: Engine) -> None:
    client = Client(engine)
    for names in ("AB", "BC", "A"):
        await client.need("one", names)
    assert client.supplied == ["one: A", "one: B", "one: C", "one: A"]


async def test_if_who_was_asked_leaves_the_next_is_asked(engine: Engine) -> None:
    client = Client(engine)

    async def leave_early() -> None:
        with trio.move_on_after(0.5):
            await client.need("hesitating", "A", delay_s=10.0)

    async def fail() -> None:
        await trio.sleep(0.1)
        with pytest.raises(ValueError, match="lost my notes"):
            await client.need("failing", "AB", delay_s=1.0, error=ValueError("lost my notes"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave_early)
        nursery.start_soon(fail)
        await trio.sleep(0.2)
        await client.need("patient", "AB")
    assert client.supplied == ["hesitating: A", "failing: B", "patient: A", "patient: B"]


async def test_two_who_wait_for_each_others_items_both_get_them(engine: Engine) -> None:
    client = Client(engine)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: client.need("one", "A", delay_s=0.3))
        nursery.start_soon(lambda: client.need("two", "B", delay_s=0.2))
        await trio.sleep(0.1)
        nursery.start_soon(client.need, "three", "AB")
        nursery.start_soon(client.need, "four", "BA")
    assert sorted(client.supplied) == ["one: A", "two: B"]


async def test_a_restart_while_features_are_on_their_way(engine: Engine) -> None:
    client = Client(engine)

    async def send_slowly() -> None:
        with pytest.raises(UnavailableError):
            await client.need("one", "A", delay_s=1.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_slowly)
        with pytest.raises(UnavailableError):
            await run_whole(engine, request("crash", (1, CRASH_ID)))
    await trio.sleep(2.0)
    await client.need("two", "A")
    assert client.supplied == ["one: A", "two: A"]


async def test_live_does_not_stand_behind_files_for_room(engine: Engine) -> None:
    """More files wait than may; a live one is neither refused nor behind any of them."""
    served: list[str] = []

    async def hold(name: str, lane: Lane) -> None:
        try:
            async with engine.placed([item(name)], lane=lane) as place:
                served.append(name)
                await whole_answer(place, request(f"on {name}", on=name))
        except OverloadedError:
            served.append("refused")

    async with trio.open_nursery() as nursery:
        for name in "ABCDEFGHIJK":
            nursery.start_soon(hold, name, Lane("batch"))
        await wait_all_tasks_blocked()
        assert len(served) == 3, "two hold all there is, eight wait, one is too many"
        assert served.count("refused") == 1
        nursery.start_soon(hold, "live", Lane("live"))
    assert served[3] == "live"
    assert len(served) == 12
