"""Keeps a cluster's engines: as many as scaling wants, listed while they can be used, replaced when lost.

Knows nothing of Ray: a `Launcher` starts engines on some machine. Whether one is lost is decided by the
servers that use it, which notice within a second, or by its launcher, if its process ends. Read
`ray_launcher.py` for the launcher, `directory.py` for who looks engines up.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import trio

from ...protocols.errors import ModelLoadError, SensoriumError
from ..config.cluster import ClusterConfig
from ..nodes.directory import ListedEngine, SeenEngine
from ..runtime.supervisor import RestartPolicy
from .directory import Directory
from .scaling import Grow, Scaler, Seen, Shrink

logger = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_POLL_S: Final = 0.1
_POLICY: Final = RestartPolicy(first_delay_s=1.0, max_delay_s=60.0, max_restarts=2**62)
_FORGET_S: Final = 300.0
"""An engine that was ready for so long failed for another reason than those before it."""


class LostEngineError(SensoriumError):
    """The engine has ended, or its launcher has."""


class LaunchedEngine(Protocol):
    """An engine that starts, runs or ends on some machine."""

    async def started(self) -> str:
        """Its address, once it is ready. Raises LostEngineError, and ModelLoadError where it would not help
        to try again."""
        ...

    async def ended(self) -> str:
        """Why it ended, once it has."""
        ...

    async def stop(self, drain_s: float) -> None:
        """End it when its requests are finished, after `drain_s` at the latest."""
        ...


class Launcher(Protocol):
    """Starts engines. Two do: Ray, and tests."""

    def launched(self) -> AbstractAsyncContextManager[LaunchedEngine]:
        """One that starts now, and is killed where the context ends."""
        ...


@dataclass(slots=True)
class _Member:
    state: Literal["starting", "ready", "draining"] = "starting"
    address: str = ""
    is_to_drain: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ready_at: float = 0.0


class Cluster:
    """The engines of a cluster. Start `run`."""

    def __init__(
        self, launcher: Launcher, directory: Directory, config: ClusterConfig, *, drain_s: float = 10.0
    ) -> None:
        self._launcher = launcher
        self._directory = directory
        self._config = config
        self._drain_s = drain_s
        self._scaler = Scaler(
            config.min_replicas,
            config.max_replicas,
            scale_up_queue_s=config.scale_up_queue_s,
            scale_down_idle_s=config.scale_down_idle_s,
        )
        self._members: list[_Member] = []
        self._was_ready = False
        self._num_failed, self._again_at = 0, 0.0

    @property
    def num_ready(self) -> int:
        """Engines that can be used."""
        return len(self._in("ready"))

    async def run(
        self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep engines until `stop`, then drain all of them; `started` when the first is ready.

        Raises ModelLoadError where the first of all cannot load its models.
        """
        async with trio.open_nursery() as nursery:
            keeping = trio.CancelScope()
            nursery.start_soon(self._stop_when, stop, keeping)
            with keeping:
                while True:
                    self._start_missing(nursery)
                    if self.num_ready and not self._was_ready:
                        self._was_ready = True
                        task_status.started()
                    self._replace_lost()
                    self._scale()
                    await trio.sleep(_LOOK_S if self._was_ready else _POLL_S)
            for member in self._members:
                if member.state == "starting":
                    member.scope.cancel()
                member.is_to_drain.set()

    async def _stop_when(self, stop: trio.Event, keeping: trio.CancelScope) -> None:
        await stop.wait()
        keeping.cancel()

    def _in(self, *states: str) -> list[_Member]:
        return [member for member in self._members if member.state in states]

    def _start_missing(self, nursery: trio.Nursery) -> None:
        if trio.current_time() < self._again_at:
            return
        for _ in range(self._scaler.num_wanted - len(self._in("starting", "ready"))):
            self._members.append(member := _Member())
            nursery.start_soon(self._keep, member)

    def _replace_lost(self) -> None:
        for member in self._in("ready"):
            seen = self._directory.seen(member.address)
            if seen and min(each.unusable_s for each in seen) >= self._config.lost_s:
                logger.error(
                    "the engine at %s could not be used by any server for %g s; it is replaced",
                    member.address,
                    self._config.lost_s,
                )
                member.scope.cancel()

    def _scale(self) -> None:
        ready = {member.address: _best(self._directory.seen(member.address)) for member in self._in("ready")}
        is_changing = len(ready) != self._scaler.num_wanted or bool(self._in("draining"))
        match self._scaler.decide(trio.current_time(), ready, is_changing=is_changing):
            case Grow(queue_s):
                logger.info(
                    "requests waited %.2g s (95th percentile of 30 s): %d engines from now on",
                    queue_s,
                    self._scaler.num_wanted,
                )
            case Shrink(address):
                logger.info("the engine at %s has nothing to do: it is drained", address)
                next(each for each in self._members if each.address == address).is_to_drain.set()

    def _show(self) -> None:
        self._directory.show(
            [
                ListedEngine(member.address, "draining" if member.state == "draining" else "ready")
                for member in self._in("ready", "draining")
            ]
        )

    async def _keep(self, member: _Member) -> None:
        """One engine, to its end."""
        try:
            with member.scope:
                async with self._launcher.launched() as engine:
                    member.address = await engine.started()
                    member.state, member.ready_at = "ready", trio.current_time()
                    logger.info("an engine runs at %s", member.address)
                    self._show()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._watch_end, member, engine)
                        await member.is_to_drain.wait()
                        await self._drain(member, engine)
                        nursery.cancel_scope.cancel()
        except ModelLoadError:
            if not self._was_ready:
                raise
            logger.exception("an engine could not start")
        except LostEngineError as error:
            logger.error("an engine could not start: %s", error)
        finally:
            self._members.remove(member)
            self._show()
        if not member.is_to_drain.is_set():
            self._back_off(member)

    async def _watch_end(self, member: _Member, engine: LaunchedEngine) -> None:
        why = await engine.ended()
        if not member.is_to_drain.is_set():
            logger.error("the engine at %s has ended: %s; it is replaced", member.address, why)
        member.scope.cancel()

    async def _drain(self, member: _Member, engine: LaunchedEngine) -> None:
        """Servers give it nothing new; it ends when it has finished what it has."""
        member.state = "draining"
        self._show()
        with trio.move_on_after(self._drain_s):
            await trio.sleep(2 * _LOOK_S)  # servers know by then
            while any(  # noqa: ASYNC110 (of servers' reports)
                each.num_requests for each in self._directory.seen(member.address)
            ):
                await trio.sleep(_POLL_S)
        await engine.stop(self._drain_s)

    def _back_off(self, member: _Member) -> None:
        """The next start waits the longer the more have failed before it."""
        now = trio.current_time()
        if member.state == "ready" and now - member.ready_at >= _FORGET_S:
            self._num_failed = 0
        self._num_failed += 1
        # One that ran is replaced at once.
        delay_s = _POLICY.delay_s(self._num_failed) if self._num_failed > 1 or not member.ready_at else 0.0
        assert delay_s is not None, "it is never given up"
        self._again_at = max(self._again_at, now + delay_s)


def _best(seen: Sequence[SeenEngine]) -> Seen | None:
    """The latest of what several servers say of one engine, which tells all of them the same."""
    if not seen:
        return None
    latest = max(seen, key=lambda each: each.queue_s.count)
    return Seen(max(each.num_requests for each in seen), latest.queue_s)
