"""A server of `sensorium.testing` with what only our own tests need: counters, how long the loop is held."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio
from sensorium import testing
from sensorium.actors.config.server import ServerConfig
from sensorium.actors.server import StartEngines
from sensorium.actors.telemetry.loop_blocking import LoopHold
from sensorium.protocols.engine.statistics import EngineStatistics
from sensorium.testing import make_config

__all__ = ["MAX_HOLD_S", "Server", "make_config", "running_server", "wait_until"]

MAX_HOLD_S = 0.05
"""The loop may not be held longer, whatever a client sends. CPU time of the loop's own thread, so that a busy
machine changes little."""
NOTED_HOLD_S = 0.005
"""What we aim at; longer ones are printed."""


@dataclass(frozen=True)
class Server(testing.Server):
    """A running server, seen from another thread."""

    def statistics(self) -> EngineStatistics:
        """The first model's counters."""
        self.refresh()
        return next(iter(self.service.models.values())).engine.statistics()

    def is_quiet(self) -> bool:
        """Whether everything is back at its level without clients."""
        self.refresh()
        for model in self.service.models.values():
            now = model.engine.statistics()
            if now.num_waiting + now.num_running + now.num_cache_references:
                return False
            if now.num_free_blocks != now.num_total_blocks:
                return False
        return not self.service.sessions and not self.service.num_requests

    def wait_quiet(self, timeout_s: float = 180.0) -> None:
        """Return when nothing is held any more; AssertionError with the numbers otherwise."""
        wait_until(self.is_quiet, timeout_s=timeout_s, what=lambda: f"{self.statistics()} {self.service}")

    @contextmanager
    def free_loop(self) -> Iterator[None]:
        """AssertionError if tasks keep the loop longer than `MAX_HOLD_S` meanwhile: twice, or once for double
        that. Once may be the machine's, which counts its work on a large body's pages as ours."""
        hold = LoopHold(above_s=NOTED_HOLD_S)
        gc.collect()
        gc.freeze()  # a server's own process has none of what tests bring along, to be looked through
        self.run(lambda: trio.lowlevel.add_instrument(hold))
        try:
            yield
        finally:
            if self.thread.is_alive():
                self.run(lambda: trio.lowlevel.remove_instrument(hold))
        for each in hold.above:
            print(f"the loop was held for {1000 * each.seconds:.1f} ms by {each.task} ({each.waits_in})")
        assert hold.longest.seconds < 2 * MAX_HOLD_S, hold.longest
        assert sum(each.seconds >= MAX_HOLD_S for each in hold.above) < 2, hold.above

    @contextmanager
    def left_quiet(self) -> Iterator[None]:
        """AssertionError if the loop is held meanwhile, or anything else afterwards."""
        with self.free_loop():
            yield
        self.wait_quiet()

    def refresh(self) -> None:
        """Bring the engines' counters up to now."""
        trio.from_thread.run(self.service.refresh, trio_token=self.token)


def wait_until(
    condition: Callable[[], bool], *, timeout_s: float = 180.0, what: Callable[[], str] = lambda: ""
) -> None:
    """Poll until `condition` holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what() or "timed out"
        time.sleep(0.01)


@contextmanager
def running_server(config: ServerConfig, *, start: StartEngines | None = None) -> Iterator[Server]:
    """See `sensorium.testing.running_server`."""
    with testing.running_server(config, start=start) as server:
        yield Server(**vars(server))
