"""Who waits for a place takes turns with other callers, and gives up a wait or a turn that comes too late."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.actors.runtime.fair_semaphore import FairSemaphore
from trio.testing import MockClock, wait_all_tasks_blocked


async def test_callers_take_turns_and_each_keeps_its_order(autojump_clock: MockClock) -> None:
    places, done = FairSemaphore(), list[str]()

    async def work(name: str) -> None:
        async with places.held_by(name[0]):
            await trio.sleep(1)
            done.append(name)

    async with trio.open_nursery() as nursery:
        for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
            nursery.start_soon(work, name)
            await wait_all_tasks_blocked()
    assert done == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


async def test_a_newcomer_gets_the_first_of_several_places_that_is_free(autojump_clock: MockClock) -> None:
    places, began = FairSemaphore(2), list[str]()

    async def work(name: str) -> None:
        async with places.held_by(name[0]):
            began.append(name)
            assert places.num_held <= 2
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        for name in ("a1", "a2", "a3", "a4", "a5", "b1"):
            nursery.start_soon(work, name)
            await wait_all_tasks_blocked()
        assert places.is_full
        assert (places.num_waiting, places.num_waiting_of("a"), places.num_waiting_of("b")) == (4, 3, 1)
    assert [sorted(began[at : at + 2]) for at in (0, 2, 4)] == [["a1", "a2"], ["a3", "b1"], ["a4", "a5"]]
    assert (places.num_waiting, places.num_held, places.is_full) == (0, 0, False)


async def test_who_holds_a_place_already_does_not_get_the_next_one(autojump_clock: MockClock) -> None:
    """Of two, one caller had both: the first that is free is the other's, though more of the one waited."""
    places, began = FairSemaphore(2), list[str]()

    async def work(name: str, length: float) -> None:
        async with places.held_by(name[0]):
            began.append(name)
            await trio.sleep(length)

    async with trio.open_nursery() as nursery:
        for name, length in (("a1", 10), ("a2", 1), ("a3", 10), ("b1", 1), ("b2", 1)):
            nursery.start_soon(work, name, length)
            await wait_all_tasks_blocked()
    assert began == ["a1", "a2", "b1", "b2", "a3"]


async def test_a_spare_place_is_for_callers_that_hold_none_and_have_waited(autojump_clock: MockClock) -> None:
    places, began = FairSemaphore(2, spare_after_s=3), list[tuple[str, float]]()

    async def work(name: str, length: float) -> None:
        async with places.held_by(name[0]):
            began.append((name, trio.current_time() - start))
            assert places.num_held <= 3
            await trio.sleep(length)

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for name, length in (("a1", 60), ("a2", 50), ("a3", 10), ("b1", 1), ("b2", 1), ("c1", 1)):
            nursery.start_soon(work, name, length)
            await wait_all_tasks_blocked()
    assert began == [("a1", 0), ("a2", 0), ("b1", 3), ("c1", 4), ("b2", 5), ("a3", 50)]
    assert (places.num_waiting, places.num_held) == (0, 0)


async def test_a_failure_gives_it_back() -> None:
    places = FairSemaphore()
    for _ in range(2):
        try:
            async with places.held_by("a"):
                raise KeyError
        except KeyError:
            pass


async def test_who_is_cancelled_when_its_turn_has_come_passes_it_on() -> None:
    places, done = FairSemaphore(), list[str]()

    async def work(name: str, scope: trio.CancelScope) -> None:
        with scope:
            async with places.held_by(name):
                done.append(name)

    async with trio.open_nursery() as nursery:
        late = trio.CancelScope()
        async with places.held_by("a"):
            nursery.start_soon(work, "b", late)
            await wait_all_tasks_blocked()
            nursery.start_soon(work, "c", trio.CancelScope())
            await wait_all_tasks_blocked()
            late.cancel()
    assert done == ["c"]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 4), st.none() | st.integers(0, 12)
        ),
        max_size=12,
    ),
)
def test_no_more_than_there_are_and_nobody_is_forgotten(
    num_places: int, jobs: list[tuple[str, int, int, int | None]]
) -> None:
    places, num_inside, num_ended = FairSemaphore(num_places), 0, 0

    async def work(caller: str, start: int, length: int, patience: int | None) -> None:
        nonlocal num_inside, num_ended
        await trio.sleep(start)
        with trio.move_on_after(float("inf") if patience is None else patience):
            async with places.held_by(caller):
                num_inside += 1
                assert num_inside <= num_places
                try:
                    await trio.sleep(length)
                finally:
                    num_inside -= 1
        num_ended += 1

    async def main() -> None:
        with trio.fail_after(1000):
            async with trio.open_nursery() as nursery:
                for job in jobs:
                    nursery.start_soon(work, *job)
            async with places.held_by("last"):
                pass

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert num_ended == len(jobs)


async def test_who_has_waited_before_has_the_spare_place_sooner(autojump_clock: MockClock) -> None:
    places, began = FairSemaphore(1, spare_after_s=3), list[tuple[str, float]]()

    async def work(caller: str, waited_s: float) -> None:
        async with places.held_by(caller, waited_s=waited_s):
            began.append((caller, trio.current_time() - start))
            await trio.sleep(10)

    for waited_s, expected in ((0, 3), (2, 1), (3, 0), (50, 0)):
        began.clear()
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, "alice", 0)
            await wait_all_tasks_blocked()
            nursery.start_soon(work, "bob", waited_s)
        assert began == [("alice", 0), ("bob", pytest.approx(expected))]
