"""Runs plans on the device, in threads of their own, so that the loop never waits for torch.

Owns the runner: builds it in one thread and calls it there; what is to be encoded apart it has executed in a
second one, beside the rest. It knows plans and results, not what is in them. Plans given before the last one
is done queue up in front of their thread, which goes from one to the next without asking the loop. A step
cannot be cancelled half-way: stopping waits for its end, within a bound. A step that takes longer than its
own bound ends the actor, and by its supervisor the group; its thread is left behind with all it holds (its
runner's memory too, so that a new one needs as much again; where there is no more, on a GPU, the device is
lost to this process), ends when the step does, and never runs another. Read `actors/inference/scheduler.py`
for where plans come from.
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
from ...protocols.shared.panics import contained_job
from ..config.engine import STEP_TIMEOUT_S
from ..runtime.actor import Handle, Inbox, Reply
from ..runtime.threads import outlasting

logger = logging.getLogger(__name__)

T = TypeVar("T")

INBOX_CAPACITY: Final = 16
"""Plans that are handed over at once: more than a scheduler has in flight."""
STOP_GRACE_S: Final = 10.0
"""Longest wait for a running step when stopping; a step takes well under a second."""


class StepTimeoutError(UnavailableError):
    """The device hangs."""


class Runner(Protocol):
    """What executes plans: `engine/execution/runner.py`, or a fake in tests."""

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
        """Do everything in `plan`. An exception means that the device or the runner is broken.

        Called from one thread, and from another one for plans that are apart.
        """


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
                with contained_job:
                    result = job()
            except Exception as error:  # whatever it is, the caller must learn it
                self._post(partial(failed, error))
            else:
                self._post(partial(done, result))

        self._jobs.put(work)

    async def aclose(self, *, grace_s: float) -> None:
        """See `Worker.aclose`. A thread that does not end in time is left behind: the interpreter's
        end waits for its job."""
        self._is_closed = True
        self._jobs.put(None)
        with trio.move_on_after(grace_s, shield=True):
            await self._stopped.wait()
            return
        logger.error("%s: still busy after %g s, abandoned", self._name, grace_s)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with outlasting():
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

    is_overlapped: bool


_Message = Plan | _Done | _Failed


class _Line:
    """A thread and the plans it was given."""

    def __init__(self, worker: Worker, timeout_s: float) -> None:
        self.worker = worker
        self.deadline = math.inf
        """Of the step that runs."""
        self._timeout_s = timeout_s
        self._num_in_flight = 0

    def submit(
        self,
        job: Callable[[], StepResult],
        done: Callable[[StepResult], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Have `job` run behind those before it."""
        if not self._num_in_flight:
            self.deadline = trio.current_time() + self._timeout_s
        self._num_in_flight += 1
        self.worker.submit(job, done, failed)

    @property
    def is_idle(self) -> bool:
        """Whether nothing it was given is outstanding."""
        return not self._num_in_flight

    def end(self) -> None:
        """A plan is done."""
        self._num_in_flight -= 1
        self.deadline = trio.current_time() + self._timeout_s if self._num_in_flight else math.inf


class _BusyTime:
    """How long anything was executed, by any number of threads: nothing counts twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_active = 0
        self._since = 0.0

    def execute(self, runner: Runner, plan: Plan) -> StepResult:
        """Execute, and measure: runners know no clock."""
        with self._lock:
            if not self._num_active:
                self._since = time.perf_counter()
            self._num_active += 1
        try:
            result = runner.execute(plan)
        finally:
            with self._lock:
                self._num_active -= 1
                now = time.perf_counter()
                busy_s, self._since = now - self._since, now
        return replace(result, busy_s=busy_s)


class ExecutorActor:
    """One task that owns the device's threads and the runner."""

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
        lines = [self._make_line()]
        grace_s = STOP_GRACE_S
        try:
            with self.inbox:
                runner = await run_in(lines[0].worker, self._make_runner)
                self.info = runner.info
                self.num_blocks, self.block_size = runner.num_blocks, runner.block_size
                task_status.started()
                try:
                    await self._execute_plans(lines, runner)
                except StepTimeoutError as error:
                    grace_s = 0.0
                    if self._survives_hanging:
                        raise
                    raise DeviceLostError(error.message) from error
        finally:
            async with trio.open_nursery() as nursery:  # one wait for all
                for line in lines:
                    nursery.start_soon(partial(line.worker.aclose, grace_s=grace_s))

    def execute(self, plan: Plan) -> None:
        """Execute `plan` after those before it, or beside them if it is apart: the scheduler's way in.

        Its result goes to `on_result`.
        """
        self._messages.send_nowait(plan)

    def _make_line(self) -> _Line:
        return _Line(self._make_worker(), self._step_timeout_s)

    async def _execute_plans(self, lines: list[_Line], runner: Runner) -> None:
        busy = _BusyTime()
        while True:
            with trio.move_on_at(min(line.deadline for line in lines)) as scope:
                message = await self.inbox.receive()
            if scope.cancelled_caught:
                raise StepTimeoutError(f"the device has not finished a step for {self._step_timeout_s:g} s")
            match message:
                case Plan(is_overlapped=is_overlapped, is_quiet=is_quiet):
                    if is_overlapped and len(lines) == 1:
                        lines.append(self._make_line())
                    elif is_quiet and len(lines) > 1 and lines[1].is_idle:
                        # OpenMP's threads spin less where there are more of them than processors.
                        await lines.pop().worker.aclose(grace_s=STOP_GRACE_S)
                    lines[is_overlapped].submit(
                        partial(busy.execute, runner, message),
                        partial(self._done, is_overlapped),
                        self._failed,
                    )
                case _Done(is_overlapped):
                    lines[is_overlapped].end()
                case _Failed(error):
                    try:
                        raise error
                    finally:
                        del error, message  # or this frame would hold them, they it, and it the runner

    def _done(self, is_overlapped: bool, result: StepResult) -> None:
        """The scheduler learns it first: it has the next plan to make."""
        if not self._is_broken:
            self._on_result(result)
            self._messages.follow_up(_Done(is_overlapped))

    def _failed(self, error: Exception) -> None:
        self._is_broken = True
        self._messages.follow_up(_Failed(error))
