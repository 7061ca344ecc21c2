"""What computes has one queue: live work first, callers in turn, and what is long gives way."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from sensorium import actors
from sensorium.actors.runtime import compute_pool as computing
from sensorium.actors.runtime.compute_pool import LANE, LINGER_S, compute, give_way, working_for
from sensorium.actors.runtime.fair_semaphore import PATIENCE
from sensorium.actors.runtime.thread_priority import NICENESS
from sensorium.protocols.engine.messages import Lane
from trio.testing import MockClock, wait_all_tasks_blocked

DOCUMENT = Path(actors.__file__).parents[1] / "docs" / "operate.md"


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "num_processors", lambda: 2)


@pytest.fixture(params=["quiet", "live"])
def one_place(request: pytest.FixtureRequest, two_processors: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For other work: of one processor, or beside live work of two, in nicer threads."""
    if request.param == "quiet":
        monkeypatch.setattr(computing, "num_processors", lambda: 1)
    else:
        monkeypatch.setattr(computing._Pool, "is_live", True)


class Jobs:
    """Work that is noted when it begins, in the order in which it does."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.began: list[str] = []
        self.may_end = threading.Event()

    async def start(self, name: str, lane: Lane, *, is_held: bool = False) -> None:
        """Ask for it, and return when it has begun or waits."""

        def work() -> None:
            self.began.append(name)
            if is_held:
                self.may_end.wait()

        async def run() -> None:
            with working_for(lane):
                await compute(work)

        self._nursery.start_soon(run)
        await wait_all_tasks_blocked(0.01)


@contextmanager
def ended(jobs: Jobs) -> Iterator[None]:
    """Let what is held end, also where a test fails."""
    try:
        yield
    finally:
        jobs.may_end.set()


async def test_live_work_waits_for_no_other_and_keeps_none_from_going_on() -> None:
    async with trio.open_nursery() as nursery:
        jobs = Jobs(nursery)
        with ended(jobs):
            await jobs.start("live 0", Lane("live", caller="a"), is_held=True)
            for number in range(3):
                await jobs.start(f"file {number}", Lane("interactive", caller="a"), is_held=True)
            assert jobs.began == ["live 0", "file 0"], "a processor is left to the loop"
            for number in (1, 2):
                await jobs.start(f"live {number}", Lane("live", caller="a"), is_held=True)
            assert jobs.began == ["live 0", "file 0", "live 1"]


async def test_while_nobody_speaks_other_work_has_all_processors(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        jobs = Jobs(nursery)
        with ended(jobs):
            await jobs.start("live", Lane("live"))
            await trio.sleep(LINGER_S)
            for number in range(3):
                await jobs.start(str(number), Lane("batch"), is_held=True)
            assert jobs.began == ["live", "0", "1"]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own")
async def test_beside_live_work_other_work_is_nicer_and_no_thread_stays_so() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    with working_for(Lane("live")):
        usual = await compute(niceness)
    assert await compute(niceness) == min(19, usual + NICENESS)
    with working_for(Lane("live")):
        assert {await compute(niceness) for _ in range(3)} == {usual}
    assert usual == niceness()


async def test_live_work_goes_by_its_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "num_processors", lambda: 1)
    async with trio.open_nursery() as nursery:
        jobs = Jobs(nursery)
        with ended(jobs):
            await jobs.start("one", Lane("live"), is_held=True)
            for name, priority in (("partial", 0), ("first words", -1), ("final", -2)):
                await jobs.start(name, Lane("live", priority))
    assert jobs.began[1:] == ["final", "first words", "partial"]


@pytest.mark.usefixtures("one_place")
async def test_better_classes_and_other_callers_go_first() -> None:
    async with trio.open_nursery() as nursery:
        jobs = Jobs(nursery)
        with ended(jobs):
            await jobs.start("a1", Lane(caller="a"), is_held=True)
            await jobs.start("batch", Lane("batch", caller="c"))
            for name in ("a2", "a3", "b1"):
                await jobs.start(name, Lane(caller=name[0]))
    assert jobs.began == ["a1", "a2", "b1", "a3", "batch"]


@pytest.mark.usefixtures("one_place")
async def test_a_worse_class_gets_on_however_much_of_a_better_one_there_is() -> None:
    async with trio.open_nursery() as nursery:
        jobs = Jobs(nursery)
        with ended(jobs):
            await jobs.start("0", Lane(caller="a"), is_held=True)
            await jobs.start("batch", Lane("batch", caller="b"))
            for number in range(2 * PATIENCE):
                await jobs.start(str(number + 1), Lane(caller="a"))
    assert jobs.began.index("batch") == PATIENCE + 1


@pytest.mark.usefixtures("one_place")
async def test_what_is_long_lets_others_go_first_and_its_own_callers_last() -> None:
    """A file is cut for minutes; another caller's waits for one piece of it, and the caller's own for all."""
    done: list[str] = []
    others_wait = threading.Event()

    def long() -> None:
        others_wait.wait()
        for number in range(3):
            done.append(f"piece {number}")
            give_way()

    async def run(work: object, lane: Lane) -> None:
        with working_for(lane):
            await compute(long if work is None else partial(done.append, str(work)))

    async with trio.open_nursery() as nursery:
        for work, caller in ((None, "a"), ("a's next", "a"), ("b's", "b"), ("c's", "c")):
            nursery.start_soon(run, work, Lane(caller=caller))
            await wait_all_tasks_blocked(0.01)
        others_wait.set()
    assert done == ["piece 0", "b's", "c's", "piece 1", "piece 2", "a's next"]


@pytest.mark.usefixtures("one_place")
async def test_long_work_ends_where_nobody_wants_it_any_more_and_leaves_its_place() -> None:
    began = threading.Event()
    num_pieces = 0

    def long() -> None:
        nonlocal num_pieces
        began.set()
        while num_pieces < 1_000_000:
            num_pieces += 1
            give_way()

    async with trio.open_nursery() as nursery:
        for caller in ("a", "b"):  # each has somebody to give way to
            with working_for(Lane(caller=caller)):
                nursery.start_soon(compute, long)
        await trio.to_thread.run_sync(began.wait)
        nursery.cancel_scope.cancel()
    assert num_pieces < 1_000_000
    with trio.fail_after(10):
        assert await compute(int, "7") == 7


def test_elsewhere_there_is_nobody_to_give_way_to() -> None:
    give_way()


async def test_who_works_is_known_to_the_tasks_that_are_started_and_not_behind_it() -> None:
    found: list[Lane] = []

    async def note() -> None:
        found.append(LANE.get())

    with working_for(Lane("live", caller="a")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note)
    await note()
    assert found == [Lane("live", caller="a"), Lane()]


@pytest.mark.usefixtures("one_place")
async def test_an_error_gives_the_place_back() -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await compute(lambda: 1 / 0)


def test_every_pool_is_in_the_table_of_the_documents() -> None:
    """Threads, processes and places that are not there have no size, order or class that anybody decided."""
    table = DOCUMENT.read_text()
    rooms = Path(actors.__file__).parent
    kinds = re.compile(r"\b(CapacityLimiter|FairSemaphore|Places|Thread|ThreadPoolExecutor)\(")
    users = {
        path.relative_to(rooms).with_suffix("").as_posix()
        for path in rooms.rglob("*.py")
        if kinds.search(path.read_text())
    }
    assert {"runtime/compute_pool", "http/responses/store", "fetching/dns"} < users
    assert not [user for user in sorted(users) if f"`{user}`" not in table]
