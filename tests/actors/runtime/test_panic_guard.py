"""At every way into work a panic is an error of that work, and the same way is used again afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.lowlevel
from sensorium.actors.inference.executor import ThreadWorker, run_in
from sensorium.actors.runtime.nursery import all_of, open_work
from sensorium.actors.runtime.off_loop import off_loop
from sensorium.actors.runtime.panic_guard import contained
from sensorium.actors.runtime.supervisor import Child, RestartPolicy, Supervisor
from sensorium.actors.runtime.threads import in_thread
from sensorium.protocols.shared.panics import PanicError


class Panic(BaseException):
    """As `pyo3_runtime.PanicException`."""


class Fragile:
    """An object that panics once."""

    def __init__(self) -> None:
        self.num_calls = 0

    def work(self) -> int:
        self.num_calls += 1
        if self.num_calls == 1:
            raise Panic("broken")
        return self.num_calls


async def in_device_thread(work: Callable[[], int]) -> int:
    worker = ThreadWorker()
    try:
        return await run_in(worker, work)
    finally:
        await worker.aclose(grace_s=5.0)


async def in_nursery(work: Callable[[], int]) -> int:
    async def one() -> None:
        found.append(work())

    found: list[int] = []
    async with open_work() as nursery:
        nursery.start_soon(trio.sleep, 0)
        nursery.start_soon(one)
    return found[0]


async def with_cancelled_siblings(work: Callable[[], int]) -> int:
    async def one(index: int) -> int:
        if index:
            await trio.sleep_forever() if fragile_first else await trio.lowlevel.checkpoint()
            return 0
        return work()

    fragile_first = not work.__self__.num_calls  # type: ignore[attr-defined]
    return (await all_of(one, range(3)))[0]


async def fenced(work: Callable[[], int]) -> int:
    with contained:
        await trio.lowlevel.checkpoint()
        return work()


WAYS: dict[str, Callable[[Callable[[], int]], Awaitable[int]]] = {
    "thread": lambda work: in_thread(work, limiter=trio.CapacityLimiter(1)),
    "device thread": in_device_thread,
    "off the loop": lambda work: off_loop(work, size=10**6),
    "short, on the loop": lambda work: off_loop(work, size=1),
    "nursery": in_nursery,
    "nursery with others": with_cancelled_siblings,
    "fence": fenced,
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_panic_is_an_error_of_the_one_piece_of_work(way: str) -> None:
    fragile = Fragile()
    with pytest.raises(PanicError, match="Panic: broken"):
        await WAYS[way](fragile.work)
    assert await WAYS[way](fragile.work) == 2


@pytest.mark.parametrize("way", ["thread", "off the loop", "short, on the loop", "fence"])
async def test_an_exit_passes(way: str) -> None:
    def leave() -> int:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await WAYS[way](leave)


async def test_a_device_thread_outlives_even_an_exit() -> None:
    """It would end without a word, and what waits for it never."""
    worker = ThreadWorker()

    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(PanicError, match="SystemExit"):
        await run_in(worker, leave)
    assert await run_in(worker, lambda: 7) == 7
    await worker.aclose(grace_s=5.0)


async def test_cancellation_passes_beside_a_panic() -> None:
    with trio.move_on_after(0.01) as scope, contained:
        await trio.sleep_forever()
    assert scope.cancelled_caught

    async def panic_as_it_ends() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise Panic("while leaving")

    async def stop_both() -> None:
        with contained, trio.CancelScope() as outer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(panic_as_it_ends)
                nursery.start_soon(trio.sleep_forever)
                await trio.lowlevel.checkpoint()
                outer.cancel()

    with pytest.raises(ExceptionGroup) as caught:
        await stop_both()
    assert caught.group_contains(PanicError)
    assert not caught.group_contains(trio.Cancelled)


async def test_an_actor_that_panics_is_started_again(autojump_clock: trio.testing.MockClock) -> None:
    crashes: list[BaseException] = []
    num_runs = 0

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal num_runs
        num_runs += 1
        task_status.started()
        if num_runs == 1:
            await trio.sleep(0.1)
            raise Panic("an actor's")
        await trio.sleep_forever()

    supervisor = Supervisor(
        "group", lambda: [Child("one", run)], policy=RestartPolicy(), on_crash=crashes.append
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        await trio.sleep(1)
        assert (supervisor.health, supervisor.num_restarts, num_runs) == ("ready", 1, 2)
        nursery.cancel_scope.cancel()
    assert [type(crash) for crash in crashes] == [PanicError]
