"""A machine that is simulated: one seed decides its clock, its threads, its processes and its chance.

Everything runs on one real thread. Time stands still while anything can run and then jumps to the next
deadline; the order of tasks that can run at the same moment is drawn from the seed. Work for threads and for
decode processes is done by the caller's thread after a drawn virtual duration, so nothing depends on the real
clock and a seed always gives the same run. `Machine.faults` decides what goes wrong (`simulation/faults.py`).
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from unittest.mock import patch

import outcome
import trio
import trio_parallel
from sensorium.actors.runtime import compute_pool as computing
from sensorium.actors.runtime.actor import Inbox
from sensorium.actors.telemetry.logs import REQUEST_ID
from simulation.faults import Faults
from trio.testing import MockClock

_T = TypeVar("_T")

_THREAD_S: Final = 0.004
_PROCESS_S: Final = 0.03
"""Mean virtual duration of a thread's and of a decode process' job."""
_START: Final = 1_800_000_000.0
"""What the wall clock shows at first."""


class Machine:
    """The parts of one run. Use `run`."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = MockClock(autojump_threshold=0)
        self.faults = Faults()
        self.wall_jump_s = 0.0
        """By how much the wall clock was set."""

    def run(self, main: Callable[[], Any]) -> Any:  # noqa: ANN401 (what `main` returns)
        """`trio.run` on this machine."""
        with self._installed():
            return trio.run(main, clock=self.clock)

    def duration_s(self, mean_s: float) -> float:
        """A drawn duration, most often below the mean and sometimes far above it."""
        return self.chance.expovariate(1 / mean_s)

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """The machine in place of the real one."""
        scheduling = trio._core._run
        interval = sys.getswitchinterval()
        state = scheduling._r.getstate(), random.getstate()
        bits = random.Random(self.chance.random())
        with ExitStack() as stack:
            for target, name, value in (
                (scheduling, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
                (trio._threads, "start_thread_soon", self._start_thread),
                (trio_parallel, "open_worker_context", self._open_workers),
                (time, "time", lambda: _START + self.clock.current_time() + self.wall_jump_s),
                (time, "monotonic", self.clock.current_time),
                (time, "perf_counter", self.clock.current_time),
                (os, "urandom", bits.randbytes),
                (random, "_urandom", bits.randbytes),
                # Work is done by the loop itself, to which it cannot give way, and no thread is nicer.
                (computing, "_give_way", lambda *_: None),
                (computing, "nicely", lambda work: work()),
                (resource, "setrlimit", lambda *_: None),
                (signal, "setitimer", lambda *_: None),
                (Inbox, "receive", _slow_receive(self.faults, Inbox.receive)),
            ):
                stack.enter_context(patch.object(target, name, value))
            scheduling._r.seed(self.chance.random())
            random.seed(self.chance.random())
            try:
                yield
            finally:
                scheduling._r.setstate(state[0])
                random.setstate(state[1])
                sys.setswitchinterval(interval)

    def _start_thread(
        self,
        work: Callable[[], _T],
        deliver: Callable[[outcome.Outcome[_T]], object],
        name: str | None = None,
    ) -> None:
        """In place of trio's cache of threads: `work` is done after a while, on the loop."""
        client = REQUEST_ID.get()
        self.faults.start_thread(client)
        pause_s = self.duration_s(_THREAD_S)

        async def run() -> None:
            await trio.sleep(pause_s)
            result = outcome.capture(work)
            error = self.faults.in_thread(client, name or "")
            deliver(result if error is None else outcome.Error(error))

        trio.lowlevel.spawn_system_task(run, name=f"thread {name}")

    @asynccontextmanager
    async def _open_workers(self, *, init: partial[Any], **_: object) -> AsyncIterator[_Workers]:
        """In place of `trio_parallel.open_worker_context`."""
        workers = _Workers(self, folder=init.args[1])
        async with AsyncExitStack():
            yield workers
        assert not workers.num_running, "jobs outlived their workers' context"


@dataclass(frozen=True)
class _WorkerStatistics:
    idle_workers: int
    running_workers: int


class _Workers:
    """In place of a `trio_parallel.WorkerContext`."""

    def __init__(self, machine: Machine, folder: str) -> None:
        self._machine = machine
        self._folder = folder
        self.num_running = 0

    async def run_sync(
        self, job: Callable[[], _T], *, cancellable: bool, limiter: trio.CapacityLimiter
    ) -> _T:
        """Do `job` in the folder of the workers, after a while; or the process dies or hangs."""
        assert cancellable
        async with limiter:
            self.num_running += 1
            try:
                await trio.sleep(self._machine.duration_s(_PROCESS_S))
                fault = self._machine.faults.in_worker(REQUEST_ID.get())
                if fault == "hangs":
                    await trio.sleep_forever()
                if fault == "dies":
                    raise trio_parallel.BrokenWorkerError("the worker died", _Dead())
                return self._do(job)
            finally:
                self.num_running -= 1

    def statistics(self) -> _WorkerStatistics:
        """Processes that are there."""
        return _WorkerStatistics(0, self.num_running)

    def _do(self, job: Callable[[], _T]) -> _T:
        before = os.getcwd()
        os.chdir(self._folder)
        try:
            return job()
        finally:
            os.chdir(before)


@dataclass(frozen=True)
class _Dead:
    """A process that was killed for its memory."""

    exitcode: int = -signal.SIGKILL


class Device:
    """A `Worker` (`actors/inference/executor.py`) whose jobs take virtual time."""

    def __init__(self, machine: Machine, model: str, step_s: float) -> None:
        self._machine = machine
        self._model = model
        self._step_s = step_s
        self._free_at = 0.0
        self._is_closed = self._is_stuck = False
        self._has_begun = False

    def submit(
        self, job: Callable[[], _T], done: Callable[[_T], None], failed: Callable[[Exception], None]
    ) -> None:
        """See `Worker.submit`."""
        start = max(self._free_at, trio.current_time())
        end = self._free_at = start + self._machine.duration_s(self._step_s)
        is_step, self._has_begun = self._has_begun, True  # the first job loads the model

        async def work() -> None:
            await trio.sleep_until(start)
            if self._is_closed or self._is_stuck:
                return
            fault = self._machine.faults.on_device(self._model) if is_step else None
            if fault == "hangs":
                self._is_stuck = True
                return
            try:
                result = job()
                if fault is not None:
                    raise fault
            except Exception as error:  # whatever it is, the caller must learn it
                failed(error)
                return
            await trio.sleep_until(end)
            if not self._is_closed:
                done(result)

        trio.lowlevel.spawn_system_task(work, name=f"device of {self._model}")

    async def aclose(self, *, grace_s: float) -> None:
        """See `Worker.aclose`."""
        self._is_closed = True
        await trio.lowlevel.checkpoint()


def _slow_receive(faults: Faults, receive: Callable[[Inbox[Any]], Any]) -> Callable[[Inbox[Any]], Any]:
    """`Inbox.receive` of an actor that may be slow, or raise."""

    async def receive_later(inbox: Inbox[Any]) -> Any:  # noqa: ANN401 (a message)
        pause_s = faults.in_actor(inbox.name)
        if pause_s:
            await trio.sleep(pause_s)
        return await receive(inbox)

    return receive_later
