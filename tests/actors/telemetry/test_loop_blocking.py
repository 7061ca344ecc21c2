"""Who holds the loop is found by name, and waiting or another thread's work is no holding."""

from __future__ import annotations

import time

import trio
import trio.lowlevel
from sensorium.actors.telemetry.loop_blocking import LoopHold
from sensorium.actors.telemetry.metrics import Metrics


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_a_task_that_computes_is_named() -> None:
    async def greedy() -> None:
        burn(0.03)
        await trio.lowlevel.checkpoint()

    async def modest() -> None:
        await trio.to_thread.run_sync(burn, 0.05)
        await trio.sleep(0.05)

    hold = LoopHold(above_s=0.02)
    trio.lowlevel.add_instrument(hold)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(greedy)
        nursery.start_soon(modest)
    trio.lowlevel.remove_instrument(hold)
    assert [each.task.endswith("greedy") for each in hold.above] == [True]
    assert "greedy" in hold.above[0].waits_in
    assert 0.03 <= hold.take() < 0.05
    assert hold.take() == 0.0


async def test_the_longest_hold_is_exported_once() -> None:
    metrics = Metrics()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metrics.watch_loop)
        await trio.sleep(0.01)
        burn(0.02)
        await trio.sleep(0.01)
        first, second = (value(metrics) for _ in range(2))
        nursery.cancel_scope.cancel()
    assert first >= 0.02
    assert second < first


def value(metrics: Metrics) -> float:
    lines = b"".join(metrics.parts()).decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("sensorium_loop_hold_seconds "))
