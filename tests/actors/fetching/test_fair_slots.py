"""Who waits for a place, and who finds one."""

from __future__ import annotations

import pytest
import trio
from sensorium.actors.fetching.fair_slots import Places
from trio.testing import wait_all_tasks_blocked


async def hold(places: Places, caller: str, had: list[str], until: trio.Event) -> None:
    async with places.taken(caller):
        had.append(caller)
        await until.wait()


async def test_a_newcomer_finds_a_place_beside_one_who_wants_all(nursery: trio.Nursery) -> None:
    places, had, until = Places(32), list[str](), trio.Event()
    for _ in range(100):
        nursery.start_soon(hold, places, "greedy", had, until)
    await wait_all_tasks_blocked()
    assert (places.num_taken, places.num_waiting) == (28, 72)
    nursery.start_soon(hold, places, "other", had, until)
    await wait_all_tasks_blocked()
    assert had.count("other") == 1
    until.set()
    await wait_all_tasks_blocked()
    assert had.count("greedy") == 100
    assert (places.num_taken, places.num_waiting) == (0, 0)


@pytest.mark.parametrize(("caller", "most"), [("", 8), ("one", 7)])
async def test_who_is_alone_has_all_unless_others_may_come(
    nursery: trio.Nursery, caller: str, most: int
) -> None:
    places, had, until = Places(8), list[str](), trio.Event()
    for _ in range(20):
        nursery.start_soon(hold, places, caller, had, until)
    await wait_all_tasks_blocked()
    assert len(had) == most
    until.set()


async def test_who_gives_up_waiting_leaves_nothing(nursery: trio.Nursery) -> None:
    places, had, until = Places(1), list[str](), trio.Event()
    nursery.start_soon(hold, places, "a", had, until)
    await wait_all_tasks_blocked()
    with trio.move_on_after(0):
        await hold(places, "b", had, until)
    assert (had, places.num_waiting) == (["a"], 0)
    until.set()
    await wait_all_tasks_blocked()
    assert places.num_taken == 0
