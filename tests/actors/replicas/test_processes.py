"""Replicas in real processes that are killed, stopped and replaced while they are asked."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from sensorium.actors.config.server import ProcessConfig, ServerConfig
from sensorium.actors.engine_process.process import EngineProcess
from sensorium.actors.errors import ConfigError
from sensorium.actors.replicas import selection
from sensorium.actors.replicas.client import ReplicatedEngine
from sensorium.actors.replicas.processes import Replicas
from sensorium.actors.replicas.selection import model_processes
from sensorium.actors.runtime.supervisor import RestartPolicy
from sensorium.actors.telemetry.metrics import Metrics
from sensorium.actors.worker_config import Orders
from support.fake_engine import request, run_whole
from support.fake_process import COMMAND, orders
from support.fake_runner import INFO, answer_alone

Pair = Replicas[EngineProcess]

pytestmark = pytest.mark.slow

CONFIG = ServerConfig(models=("fake0",), process=ProcessConfig(replicas=2))


def make(index: int, has_others: Callable[[], bool]) -> EngineProcess:
    return EngineProcess(
        orders("fake"),
        silence_s=600.0,
        left_out_s=1.0,
        has_others=has_others,
        policy=RestartPolicy(first_delay_s=0.05),
        command=COMMAND,
        name=f"engines of replica {index}",
    )


class RecordedProcess(EngineProcess):
    """Keeps its orders in sight."""

    def __init__(self, orders: Orders, **options: Any) -> None:  # noqa: ANN401 (passed on)
        super().__init__(orders, **options)
        self.orders = orders


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    with trio.fail_after(timeout_s):
        while not condition():  # noqa: ASYNC110 (of processes)
            await trio.sleep(0.01)


@pytest.fixture
async def replicas(nursery: trio.Nursery) -> Pair:
    replicas = Replicas(make, 2, CONFIG)
    with replicas.begun():
        await nursery.start(replicas.run)
    replicas.set_info(0, INFO)
    return replicas


def pids(replicas: Pair) -> list[int | None]:
    return [process.pid() for process in replicas.processes]


async def ask(engine: ReplicatedEngine, name: str) -> None:
    with trio.fail_after(30):
        assert (await run_whole(engine, request(name))).token_ids == answer_alone(request(name))[0]


async def test_one_is_killed(replicas: Pair) -> None:
    (engine,) = replicas.engines
    first, second = pids(replicas)
    assert first is not None
    assert second is not None
    os.kill(first, signal.SIGKILL)
    for number in range(8):
        await ask(engine, f"{number}")
    assert engine.health == "ready"
    await until(lambda: replicas.processes[0].health == "ready" and replicas.processes[0].pid() != first)
    assert replicas.processes[1].pid() == second
    for number in range(4):
        await ask(engine, f"again {number}")


async def test_what_was_sent_to_one_that_is_lost_is_forgotten_at_once(
    replicas: Pair,
) -> None:
    (engine,) = replicas.engines
    keys = [f"session {number}" for number in range(4)]
    places = {key: engine.router.choose((0, 1), key) for key in keys}
    victim = replicas.processes[0].pid()
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    await until(lambda: engine.engines[0].health == "restarting")
    assert [engine.router.place_of(key) for key in keys] == [place or None for place in places.values()]
    replicas.processes[1].replace()
    await until(lambda: engine.engines[1].health == "restarting")
    assert [engine.router.place_of(key) for key in keys] == [None] * 4


async def test_cancelling_ends_all_processes() -> None:
    replicas, lost = Replicas(make, 2, CONFIG), list[int]()
    for index, process in enumerate(replicas.processes):
        process.on_lost = partial(lost.append, index)
    with replicas.begun(), trio.fail_after(60):
        async with trio.open_nursery() as running:
            await running.start(replicas.run)
            running.cancel_scope.cancel()
    assert sorted(lost) == [0, 1]
    assert pids(replicas) == [None, None]


async def test_one_is_stopped_and_goes_on(replicas: Pair) -> None:
    """What it was asked goes elsewhere after a second; when it speaks again it is asked again."""
    (engine,) = replicas.engines
    stopped, _ = pids(replicas)
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    try:
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(ask, engine, f"{number}")
        assert [each.health for each in engine.engines] == ["unresponsive", "ready"]
    finally:
        os.kill(stopped, signal.SIGCONT)
    await until(lambda: [each.health for each in engine.engines] == ["ready", "ready"])
    assert pids(replicas)[0] == stopped
    await engine.refresh()
    await until(lambda: engine.statistics().num_running == 0)
    for number in range(4):
        await ask(engine, f"again {number}")


async def test_all_are_replaced_while_they_are_asked(replicas: Pair) -> None:
    (engine,) = replicas.engines
    before, is_over = pids(replicas), False

    async def keep_asking() -> None:
        number = 0
        while not is_over:
            await ask(engine, f"{number}")
            number += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_asking)
        await replicas.replace_all(5.0)
        is_over = True
    after = pids(replicas)
    assert len({*before, *after}) == 4
    assert [process.num_restarts() for process in replicas.processes] == [1, 1]


async def test_metrics_tell_them_apart(replicas: Pair) -> None:
    metrics = Metrics()
    replicas.add_metrics(metrics)
    for number in range(2):
        await ask(replicas.engines[0], f"{number}")
    text = b"".join(metrics.parts()).decode()
    for replica in "01":
        assert f'sensorium_replica_ready{{replica="{replica}"}} 1.0' in text
        assert f'sensorium_engine_process_restarts_total{{replica="{replica}"}} 0.0' in text
        assert f'sensorium_replica_placed_total{{model="fake0",replica="{replica}"}} 1.0' in text
        assert f'sensorium_engine_process_resident_memory_bytes{{replica="{replica}"}}' in text


def test_all_share_what_was_free_before_the_first_start(monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter((4096, 1024))
    monkeypatch.setattr(selection, "host_bytes", lambda: next(free))
    monkeypatch.setattr(selection, "EngineProcess", RecordedProcess)
    replicas = model_processes(CONFIG)
    received = [each.orders for each in replicas.processes if isinstance(each, RecordedProcess)]
    assert [(each.num_sharing, each.host_bytes) for each in received] == [(2, 4096)] * 2
    assert next(free) == 1024, "measured once"


def test_what_does_not_go_together_is_said() -> None:
    with pytest.raises(ConfigError, match="--replicas is 2 with --engine-process off; allowed: on"):
        ProcessConfig(engine_process="off", replicas=2)
    with pytest.raises(ConfigError, match="--replicas is 0; allowed: "):
        ProcessConfig(replicas=0)
