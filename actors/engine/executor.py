"""Runs plans on the device, in one thread of its own, so that the loop never waits for torch.

Owns the runner: builds it, calls it, drops it, all in that thread. It knows plans and results, not what is
in them. Plans given before the last one is done queue up in front of the thread, which goes from one to the
next without asking the loop. A step cannot be cancelled half-way: stopping waits for its end, within a
bound. A step that takes longer than its own bound ends the actor, and by its supervisor the group; its
thread is left behind with all it holds (its runner's memory too, so that a new one needs as much again; where
there is no more, on a GPU, the device is lost to this process), ends when the step does, and never runs
another. Read `actors/engine/scheduler.py` for where plans come from.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol, TypeVar

import trio

from ...engine.models.info import ModelInfo
from ...engine.planning.plan import Plan, StepResult
from ...protocols.errors import DeviceLostError, UnavailableError
from ..config import STEP_TIMEOUT_S
from ..kernel.actor import Handle, Inbox, Reply

logger = logging.getLogger(__name__)

T = TypeVar("T")

INBOX_CAPACITY: Final = 16
"""Plans that are handed over at once: more than a scheduler has in flight."""
STOP_GRACE_S: Final = 10.0
"""Longest wait for a running step when stopping; a step takes well under a second."""


class StepTimeoutError(UnavailableError):
    """The device hangs."""


class Runner(Protocol):
    """What executes plans: `engine/execution/runner.py`, or a fake in tests. Used from one thread only."""

    @property
    def info(self) -> ModelInfo:
        """What others may know of the model."""

    @property
    def num_blocks(self) -> int:
        """Blocks of key-value memory."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    def execute(self, plan: Plan) -> StepResult:
        """Do everything in `plan`. An exception means that the device or the runner is broken."""


class Worker(Protocol):
    """Where jobs run, one after the other: a thread, or inline in tests whose clock is virtual."""

    def submit(
        self, job: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """Run `job` after those before it, then call `done` with its result, or `failed`, in the loop."""

    async def aclose(self, *, grace_s: float) -> None:
        """Run no further jobs; wait that long for the running one."""


class ThreadWorker:
    """One long-lived thread.

    Not `trio.to_thread`, whose threads come and go: torch keeps its thread count, and OpenMP a pool of
    threads, for each thread that computes.
    """

    def __init__(self, name: str = "sensorium-device") -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        self._is_closed = False
        self._stopped = trio.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, job: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """See `Worker.submit`."""

        def work() -> None:
            try:
                result = job()
            except Exception as error:  # whatever it is, the caller must learn it
                self._post(partial(failed, error))
            else:
                self._post(partial(done, result))

        self._jobs.put(work)

    async def aclose(self, *, grace_s: float) -> None:
        """See `Worker.aclose`. A thread that does not end in time is left behind (it is a daemon)."""
        self._is_closed = True
        self._jobs.put(None)
        with trio.move_on_after(grace_s, shield=True):
            await self._stopped.wait()
            return
        logger.error("%s: still busy after %g s, left behind", self._name, grace_s)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._is_closed:
                job()
            del job  # it holds the runner
        self._post(self._stopped.set)

    def _post(self, call: Callable[[], None]) -> None:
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            logger.debug("%s: the loop ended before its thread", self._name)


async def run_in(worker: Worker, job: Callable[[], T]) -> T:
    """The job's result or exception. Cancellation does not stop a job that has begun."""
    reply: Reply[T] = Reply()
    worker.submit(job, reply.set, reply.fail)
    return await reply.wait()


@dataclass(frozen=True, slots=True)
class _Failed:
    """A step raised."""

    error: Exception


@dataclass(frozen=True, slots=True)
class _Done:
    """A step is done; its result is already where it belongs."""


_Message = Plan | _Done | _Failed


class ExecutorHandle:
    """What the scheduler may ask of the executor."""

    def __init__(self, handle: Handle[_Message]) -> None:
        self._handle = handle

    def execute(self, plan: Plan) -> None:
        """Execute `plan` after those before it; its result goes to `on_result`."""
        self._handle.tell(plan)


class ExecutorActor:
    """One task that owns the device's thread and the runner in it."""

    def __init__(
        self,
        *,
        make_runner: Callable[[], Runner],
        make_worker: Callable[[], Worker],
        on_result: Callable[[StepResult], None],
        step_timeout_s: float = STEP_TIMEOUT_S,
        survives_hanging: bool = True,
    ) -> None:
        self.inbox: Inbox[_Message] = Inbox("executor", INBOX_CAPACITY)
        self._messages: Handle[_Message] = Handle(self.inbox)
        self.handle = ExecutorHandle(self._messages)
        self.info: ModelInfo | None = None
        """Known once the actor has started, as are the two below."""
        self.num_blocks = 0
        self.block_size = 0
        self._make_runner = make_runner
        self._make_worker = make_worker
        self._on_result = on_result
        self._step_timeout_s = step_timeout_s
        self._survives_hanging = survives_hanging
        self._is_broken = False  # results of plans behind one that failed mean nothing

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Build the runner (started when that is done), then execute plans in order until cancelled.

        Whatever `execute` raises ends the actor, as does a step that takes longer than `step_timeout_s`
        (StepTimeoutError, DeviceLostError unless a new runner can do beside one that hangs).
        """
        worker = self._make_worker()
        grace_s = STOP_GRACE_S
        try:
            with self.inbox:
                runner = await run_in(worker, self._make_runner)
                self.info = runner.info
                self.num_blocks, self.block_size = runner.num_blocks, runner.block_size
                task_status.started()
                try:
                    await self._execute_plans(worker, runner)
                except StepTimeoutError as error:
                    grace_s = 0.0
                    if self._survives_hanging:
                        raise
                    raise DeviceLostError(error.message) from error
        finally:
            await worker.aclose(grace_s=grace_s)

    async def _execute_plans(self, worker: Worker, runner: Runner) -> None:
        num_in_flight = 0
        deadline = math.inf  # of the step that runs
        while True:
            with trio.move_on_at(deadline) as scope:
                message = await self.inbox.receive()
            if scope.cancelled_caught:
                raise StepTimeoutError(f"the device has not finished a step for {self._step_timeout_s:g} s")
            match message:
                case Plan():
                    if not num_in_flight:
                        deadline = trio.current_time() + self._step_timeout_s
                    num_in_flight += 1
                    worker.submit(partial(_execute, runner, message), self._done, self._failed)
                case _Done():
                    num_in_flight -= 1
                    deadline = trio.current_time() + self._step_timeout_s if num_in_flight else math.inf
                case _Failed(error):
                    raise error

    def _done(self, result: StepResult) -> None:
        """The scheduler learns it first: it has the next plan to make."""
        if not self._is_broken:
            self._on_result(result)
            self._messages.follow_up(_Done())

    def _failed(self, error: Exception) -> None:
        self._is_broken = True
        self._messages.follow_up(_Failed(error))


def _execute(runner: Runner, plan: Plan) -> StepResult:
    """Execute, and measure: runners know no clock."""
    start = time.perf_counter()
    result = runner.execute(plan)
    return replace(result, busy_s=time.perf_counter() - start)
