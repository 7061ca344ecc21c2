"""Long work is done in a few threads, of which callers take turns; short work is done at once."""

from __future__ import annotations

import queue
import threading
from functools import partial

import pytest
import trio
from sensorium.actors.live.session import SessionActor
from sensorium.actors.runtime import compute_pool as computing
from sensorium.actors.runtime.compute_pool import LANE
from sensorium.actors.runtime.off_loop import off_loop
from sensorium.protocols.engine.messages import Lane
from support.fake_sessions import Sessions
from trio.testing import wait_all_tasks_blocked


async def test_short_work_is_done_at_once() -> None:
    assert await off_loop(threading.get_ident, size=10, most_inline=10) == threading.get_ident()
    assert await off_loop(threading.get_ident, size=11, most_inline=10) != threading.get_ident()


async def test_a_few_work_at_a_time_and_callers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "num_processors", lambda: 2)
    began: queue.SimpleQueue[str] = queue.SimpleQueue()
    may_end = threading.Semaphore(0)

    def work(name: str) -> None:
        began.put(name)
        may_end.acquire()

    async def submit(name: str) -> None:
        LANE.set(Lane(caller=name[0]))
        await off_loop(partial(work, name), size=10_000)

    async with trio.open_nursery() as nursery:
        for name in ("a1", "a2", "a3", "a4", "b1"):
            nursery.start_soon(submit, name)
            await wait_all_tasks_blocked(0.01)
        working = began.qsize()
        order = [await trio.to_thread.run_sync(began.get) for _ in range(2)]
        for _ in range(3):
            may_end.release()
            order.append(await trio.to_thread.run_sync(began.get))
        may_end.release(2)
    assert working == 2
    assert set(order[:2]) == {"a1", "a2"}
    assert order[2:] == ["b1", "a3", "a4"], "who has no thread goes before who has one"


async def test_no_session_waits_behind_all_long_prompts_of_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    may_go_on = threading.Event()

    async def run(_: SessionActor) -> None:
        await off_loop(partial(done.append, "hints"), size=10_000)

    monkeypatch.setattr(SessionActor, "run", run)
    monkeypatch.setattr(computing, "num_processors", lambda: 1)
    sessions = Sessions()
    async with trio.open_nursery() as nursery:
        await nursery.start(sessions.registry.run)
        async with trio.open_nursery() as requests:
            requests.start_soon(partial(off_loop, may_go_on.wait, size=10_000))
            await wait_all_tasks_blocked()
            for _ in range(3):
                requests.start_soon(partial(off_loop, partial(done.append, "prompt"), size=10_000))
            await wait_all_tasks_blocked()
            await sessions.connect(nursery)
            await wait_all_tasks_blocked()
            may_go_on.set()
        nursery.cancel_scope.cancel()
    assert done == ["prompt", "hints", "prompt", "prompt"]
