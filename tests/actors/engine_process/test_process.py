"""The engines' process: started, watched, started again; never longer there than who started it."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio
from sensorium.actors import worker_config
from sensorium.actors.engine_process.client import RemoteEngine
from sensorium.actors.engine_process.peer import EngineProcessError
from sensorium.actors.engine_process.process import EngineProcess
from sensorium.actors.http.error_bodies import error_response
from sensorium.actors.runtime.supervisor import Health, RestartPolicy
from sensorium.actors.worker_config import Orders
from sensorium.protocols.engine.messages import Transduce, Transduced
from sensorium.protocols.errors import ModelLoadError, UnavailableError
from support.fake_engine import fed, request, run_whole
from support.fake_process import COMMAND, orders
from support.fake_runner import answer_alone
from support.fake_transducer import chunk_of, transduced_alone

pytestmark = pytest.mark.slow

PARENT = Path(__file__).parents[2] / "support" / "killed_parent.py"
POLICY = RestartPolicy(first_delay_s=0.05, max_restarts=2)


def health(engine: RemoteEngine) -> Health:
    """Where it is now; what it was a line before says nothing."""
    return engine.health


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    with trio.fail_after(timeout_s):
        while not condition():  # noqa: ASYNC110 (of processes)
            await trio.sleep(0.01)


def is_there(pid: int) -> bool:
    """Whether a process runs, that nobody has to wait for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_it_answers_dies_hangs_comes_back_and_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    process = EngineProcess(orders("fake", "fake"), silence_s=600.0, policy=POLICY, command=COMMAND)
    engine, other = process.engines
    assert health(engine) == "starting"
    async with trio.open_nursery() as nursery:
        await nursery.start(process.run)
        assert (health(engine), health(other)) == ("ready", "ready")
        assert (await run_whole(engine, request("a"))).token_ids == answer_alone(request("a"))[0]
        await engine.refresh()
        before = engine.statistics()
        first = process.pid()
        assert first is not None
        assert process._load_s > 0
        monkeypatch.setattr(process, "_load_s", 20.0)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(first, number)  # are its parent's business
        async with engine.placed() as place, place.run(request("b", max_tokens=100)) as stream:
            await anext(stream)
            os.kill(first, signal.SIGSEGV)
            with pytest.raises(UnavailableError, match="failed and is being restarted") as lost:
                async for _ in stream:
                    pass
            assert lost.value.code == "engine_lost"
        assert health(engine) == "restarting"
        with pytest.raises(UnavailableError, match="is restarting") as refused:
            await run_whole(other, request("a"))
        assert refused.value.code == "engine_unavailable"
        for error in (lost.value, refused.value):
            assert error.retry_after_s is not None
            assert 10.0 < error.retry_after_s <= 20.0, "as long as it took to load"
        await until(lambda: health(engine) == "ready")
        assert process.pid() != first
        assert (process.num_restarts(), engine.statistics().num_restarts) == (1, 1)
        assert (await run_whole(engine, request("a"))).token_ids == answer_alone(request("a"))[0]
        await engine.refresh()
        assert engine.statistics().num_steps > before.num_steps > 0
        second = process.pid()
        assert second is not None
        os.kill(second, signal.SIGSTOP)
        with monkeypatch.context() as patch:  # not before: a busy machine is silent now and then, too
            patch.setattr(engine._line, "_silence_s", 1.0)
            await until(lambda: health(engine) == "unresponsive")
            with pytest.raises(UnavailableError, match="unresponsive"):
                await run_whole(engine, request("a"))
            patch.setattr(process, "_silence_s", 2.0)
            await until(lambda: health(engine) == "restarting")
        await until(lambda: health(engine) == "ready")
        third = process.pid()
        assert third is not None
        assert (await run_whole(engine, request("a"))).token_ids == answer_alone(request("a"))[0]
        os.kill(third, signal.SIGKILL)
        await until(lambda: health(engine) == "failed")
        with pytest.raises(UnavailableError, match="must be restarted") as refused:
            await run_whole(engine, request("a"))
        assert refused.value.code == "engine_unavailable"
        assert "retry-after" not in error_response(refused.value).headers
        assert process.pid() is None
        nursery.cancel_scope.cancel()
    assert not any(map(is_there, (first, second, third)))


async def test_who_feeds_a_process_that_is_killed_is_told_and_can_feed_the_next() -> None:
    process = EngineProcess(orders("fed"), silence_s=600.0, policy=POLICY, command=COMMAND)
    (engine,) = process.engines
    frames = (1.0, 2.0, 3.0, 4.0, 5.0)
    whole = transduced_alone(Transduce(), frames)

    async def answer() -> Transduced:
        async with engine.placed() as place, place.run(fed("a")) as run:
            await run.feed(chunk_of(frames[:2]))
            async with run.fork(fed("b")) as fork:
                await fork.feed(chunk_of(frames[2:], is_last=True))
                final = await fork.outcome()
            first = await anext(aiter(run))
            assert isinstance(first, Transduced)
            assert isinstance(final, Transduced)
            return msgspec.structs.replace(final, token_ids=first.token_ids + final.token_ids)

    async with trio.open_nursery() as nursery:
        await nursery.start(process.run)
        assert (await answer()).token_ids == whole.token_ids
        async with engine.placed() as place, place.run(fed("a")) as run, run.fork(fed("b")) as fork:
            await run.feed(chunk_of(frames[:2]))
            await anext(aiter(run))
            os.kill(process.pid() or 0, signal.SIGKILL)
            for each in (run, fork):
                with pytest.raises(UnavailableError):
                    await each.outcome()
                with pytest.raises(UnavailableError):
                    await each.feed(chunk_of(frames[2:], is_last=True))
        await until(lambda: health(engine) == "ready")
        assert (await answer()).token_ids == whole.token_ids
        nursery.cancel_scope.cancel()


async def test_it_is_started_as_soon_as_the_system_can(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That no process could be started is no crash: of those it has no more than two."""
    monkeypatch.setattr("sensorium.actors.engine_process.process._AGAIN_S", 0.01)
    process = EngineProcess(orders("fake"), silence_s=600.0, policy=POLICY, command=COMMAND)
    (engine,) = process.engines
    spawn, refused = process._spawn, list[float]()

    def refuse() -> tuple[subprocess.Popen[bytes], socket.socket]:
        if len(refused) == 10:
            return spawn()
        refused.append(trio.current_time())
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async with trio.open_nursery() as nursery:
        await nursery.start(process.run)
        first = process.pid()
        assert first is not None
        monkeypatch.setattr(process, "_spawn", refuse)
        os.kill(first, signal.SIGSEGV)
        await until(lambda: len(refused) == 10)
        assert health(engine) == "restarting"
        await until(lambda: health(engine) == "ready")
        assert (await run_whole(engine, request("a"))).token_ids == answer_alone(request("a"))[0]
        nursery.cancel_scope.cancel()
    assert process.num_restarts() == 1
    assert sum("cannot be started now" in message for message in caplog.messages) == 10


async def test_one_that_was_begun_is_the_first_that_runs() -> None:
    process = EngineProcess(orders("fake"), silence_s=600.0, policy=POLICY, command=COMMAND)
    (engine,) = process.engines
    with process.begun():
        begun = process.pid()
        assert begun is not None
        async with trio.open_nursery() as nursery:
            await nursery.start(process.run)
            assert process.pid() == begun
            os.kill(begun, signal.SIGKILL)
            await until(lambda: health(engine) == "restarting")
            await until(lambda: health(engine) == "ready")
            assert process.pid() != begun
            assert (await run_whole(engine, request("a"))).token_ids == answer_alone(request("a"))[0]
            nursery.cancel_scope.cancel()


async def test_one_that_was_begun_does_its_orders_before_anyone_listens() -> None:
    process = EngineProcess(orders("missing"), silence_s=10, command=COMMAND)
    with process.begun():
        begun = process.pid()
        assert begun is not None
        await until(lambda: not is_there(begun))
        reason = pytest.RaisesExc(ModelLoadError, match="missing0: no such folder")
        with pytest.RaisesGroup(reason, flatten_subgroups=True, allow_unwrapped=True):
            await process.run()


def test_one_that_was_begun_and_never_run_ends() -> None:
    process = EngineProcess(orders("fake"), silence_s=10, command=COMMAND)
    with process.begun():
        begun = process.pid()
        assert begun is not None
        assert is_there(begun)
    assert not is_there(begun)


@pytest.mark.parametrize(
    ("command", "kind", "reason"),
    [
        (COMMAND, ModelLoadError, "missing1: no such folder"),
        ((sys.executable, "-c", "raise SystemExit(3)"), EngineProcessError, "ended with status 3"),
    ],
    ids=["says why", "dies"],
)
async def test_what_its_first_start_fails_with_is_raised(
    command: tuple[str, ...], kind: type[Exception], reason: str
) -> None:
    process = EngineProcess(orders("fake", "missing"), silence_s=10, command=command)
    with pytest.RaisesGroup(
        pytest.RaisesExc(kind, match=reason), flatten_subgroups=True, allow_unwrapped=True
    ):
        await process.run()
    assert health(process.engines[0]) == "failed"


async def test_one_that_hangs_while_it_loads_is_not_waited_for() -> None:
    process = EngineProcess(orders("stuck"), silence_s=0.5, command=COMMAND)
    with (
        pytest.RaisesGroup(
            pytest.RaisesExc(EngineProcessError, match="has not responded for"),
            flatten_subgroups=True,
            allow_unwrapped=True,
        ),
        trio.fail_after(30),
    ):
        await process.run()
    assert process.pid() is None


async def test_a_model_that_has_changed_meanwhile_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    """Who faces clients has the side that was read at the first start. However long a start takes, it is not
    tried again: crashes that far apart would be forgotten, and no probe ever say that it is over."""
    policy = RestartPolicy(first_delay_s=0.05, window_s=0.01)
    process = EngineProcess(orders("fake", "changing"), silence_s=600.0, policy=policy, command=COMMAND)
    async with trio.open_nursery() as nursery:
        await nursery.start(process.run)
        first = process.pid()
        assert first is not None
        os.kill(first, signal.SIGSEGV)
        await until(lambda: health(process.engines[0]) == "failed")
        nursery.cancel_scope.cancel()
    message = "changing1: its files are not those this server began with; restart the server"
    assert [record.message for record in caplog.records if record.levelname == "CRITICAL"] == [message]
    assert process.num_restarts() == 1


async def test_a_checkpoints_files_come_once_and_must_stay_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    given: list[Orders] = []

    def written(orders: Orders) -> bytes:
        given.append(orders)
        return worker_config.written(orders)

    monkeypatch.setattr("sensorium.actors.engine_process.process.written", written)
    policy = RestartPolicy(first_delay_s=0.05)
    process = EngineProcess(orders(str(tmp_path)), silence_s=600.0, policy=policy, command=COMMAND)

    def kill() -> int:
        pid = process.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return pid

    async with trio.open_nursery() as nursery:
        await nursery.start(process.run)
        (checkpoint,) = process.checkpoints
        assert (checkpoint.files.names, checkpoint.contents) == (("config.json",), (b"{}",))
        pid = kill()
        await until(lambda: process.pid() not in (None, pid) and health(process.engines[0]) == "ready")
        assert [each.known_checkpoints for each in given] == [(), (checkpoint.files.digest,)]
        (tmp_path / "config.json").write_text("{ }")
        kill()
        await until(lambda: health(process.engines[0]) == "failed")
        nursery.cancel_scope.cancel()


def test_it_ends_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_there(pid)
        parent.kill()
    trio.run(until, lambda: not is_there(pid), 10.0)
