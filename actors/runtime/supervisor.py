"""Starts a group of actors, watches them, restarts them together and stops them.

The actors of one group share state by messages, so when one crashes all are stopped and started afresh
(one-for-all); a bounded exponential back-off decides when, and when to give up. The supervisor knows no
messages: what must be failed at a crash is told by `on_crash`. Read `actors/inference/engine.py` next for a
group.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import trio

from .panic_guard import contained

logger = logging.getLogger(__name__)

Health = Literal["starting", "ready", "unresponsive", "restarting", "failed", "stopped"]
"""A supervisor knows no "unresponsive": that is a process that has not said anything for a while."""


class RunActor(Protocol):
    """`run` of an actor: calls `task_status.started()` when ready and returns only when cancelled."""

    def __call__(self, *, task_status: trio.TaskStatus[None]) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True)
class Child:
    """One actor of a group, by name. Children start in order, each after the one before is ready."""

    name: str
    run: RunActor


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Back-off doubles from `first_delay_s` to `max_delay_s`; too many crashes in a window give up.

    The window is of time in which the group was ready: however long its starts take, one that never gets
    further is given up.
    """

    first_delay_s: float = 0.1
    max_delay_s: float = 10.0
    max_restarts: int = 5
    window_s: float = 60.0

    def delay_s(self, num_recent: int) -> float | None:
        """Seconds to wait after the `num_recent`-th crash within the window, or None to give up."""
        if num_recent > self.max_restarts:
            return None
        return min(self.first_delay_s * 2.0 ** (num_recent - 1), self.max_delay_s)


class Supervisor:
    """Keeps one group of actors alive: start → ready → (restart)* → stopped.

    `make_children` is called for every start, so each incarnation has fresh actors and inboxes.
    `on_crash` is called at once, before the other children are stopped (which may take as long as one step
    of device work). A group that crashes before it was ever ready is not retried: `run` raises its error,
    since a missing file does not appear by waiting. So it does with a `fatal` crash at any time.
    """

    def __init__(
        self,
        name: str,
        make_children: Callable[[], Sequence[Child]],
        *,
        policy: RestartPolicy | None = None,
        on_crash: Callable[[BaseException], None] | None = None,
        fatal: type[BaseException] | tuple[()] = (),
        planned: type[BaseException] | tuple[()] = (),
    ) -> None:
        """A `planned` crash is none: the group is started again at once, and nothing counts against it."""
        self.name = name
        self.health: Health = "starting"
        self.num_restarts = 0
        self._make_children = make_children
        self._policy = policy or RestartPolicy()
        self._on_crash = on_crash
        self._fatal = fatal
        self._planned = planned
        self._crashes: deque[float] = deque()
        """Each by the seconds that the group had been ready by then."""
        self._served_s = self._ready_since = 0.0
        self._crash: BaseException | None = None
        self._was_ready = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the group running until cancelled; `started` once it is first ready.

        Raises the error of a group that could not start the first time, and a fatal one. A group that
        crashed too often leaves health "failed", and `run` then waits to be stopped: one failed group is no
        reason to take its neighbours down.
        """
        try:
            while True:
                crash = await self._run_group(task_status)
                if not self._was_ready or isinstance(crash, self._fatal):
                    self.health = "failed"
                    raise crash
                is_planned = isinstance(crash, self._planned)
                del crash  # its frames hold what the group was made of: a device has no room for two
                if is_planned:
                    self.num_restarts += 1
                else:
                    await self._back_off()
        finally:
            if self.health != "failed":
                self.health = "stopped"

    async def _run_group(self, task_status: trio.TaskStatus[None]) -> BaseException:
        """Run one incarnation; the crash that ended it."""
        async with trio.open_nursery() as nursery:
            for child in self._make_children():
                ready = _Ready()
                nursery.start_soon(self._watch, child, ready, nursery.cancel_scope)
                await ready.event.wait()  # a crash cancels the nursery, and with it this wait
            if not nursery.cancel_scope.cancel_called:  # the last may have crashed as it became ready
                self.health = "ready"
                self._ready_since = trio.current_time()
                if not self._was_ready:
                    self._was_ready = True
                    task_status.started()
        crash, self._crash = self._crash, None
        assert crash is not None, "a group ends by a crash, or by being cancelled"
        return crash

    async def _watch(self, child: Child, ready: _Ready, scope: trio.CancelScope) -> None:
        try:
            with contained:
                await child.run(task_status=ready)
            raise RuntimeError(f"{child.name} ended unexpectedly")
        except* Exception as group:  # a Cancelled beside the error in one group passes through
            self._crashed(child, _only(group), scope)

    def _crashed(self, child: Child, crash: BaseException, scope: trio.CancelScope) -> None:
        if scope.cancel_called:  # stopped, or another child crashed first
            logger.warning("%s: %s failed while stopping", self.name, child.name, exc_info=crash)
            return
        if isinstance(crash, self._planned):
            logger.info("%s: the %s is replaced", self.name, child.name)
        else:
            # Before it was ever ready nobody tries again: whoever runs this is told, and says it.
            level = logging.ERROR if self._was_ready else logging.DEBUG
            logger.log(level, "%s: %s crashed", self.name, child.name, exc_info=crash)
        self._crash = crash
        if self.health == "ready":
            self._served_s += trio.current_time() - self._ready_since
            self.health = "failed" if isinstance(crash, self._fatal) else "restarting"
        scope.cancel()
        if self._on_crash is not None:
            self._on_crash(crash)

    async def _back_off(self) -> None:
        self._crashes.append(self._served_s)
        while self._crashes[0] <= self._served_s - self._policy.window_s:
            self._crashes.popleft()
        delay_s = self._policy.delay_s(len(self._crashes))
        if delay_s is None:
            self.health = "failed"
            logger.critical("%s: crashed %d times, giving up", self.name, len(self._crashes))
            await trio.sleep_forever()
        self.num_restarts += 1
        await trio.sleep(delay_s)


class _Ready(trio.TaskStatus[None]):
    """A `task_status` that only remembers that `started` was called.

    `nursery.start` is not used: it would raise its own RuntimeError for a child whose crash we caught.
    """

    def __init__(self) -> None:
        self.event = trio.Event()

    def started(self, value: None = None) -> None:  # noqa: ARG002 (trio's signature)
        self.event.set()


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error inside nested groups, or the group if it holds several."""
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner
