"""The trio side of a local engine without a model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import trio
from sensorium.actors.local.core import LoadedLocal, LocalCore
from sensorium.actors.local.options import Delta
from sensorium.actors.runtime.nursery import open_work
from sensorium.protocols.errors import UnavailableError

DELTA = Delta("x", (1,), None)


class Core(LocalCore):
    """Gives two deltas, then nothing more; `load` waits for `go_on`."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.loading, self.ended = threading.Event(), threading.Event()
        self.streaming, self.stopped = threading.Event(), threading.Event()
        super().__init__(self._load_it, max_running=1)

    def _load_it(self) -> LoadedLocal:
        self.loading.set()
        assert self.go_on.wait(60)
        return LoadedLocal(name="fake", run=self._run_it, text=None, speech=None)

    async def _run_it(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.over = trio.Event()
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            self.over.set()
            self.ended.set()

    async def stream(self, *given: Any) -> None:  # noqa: ANN401 (of the real one)
        put: Callable[[Delta], None] = given[-1]
        put(DELTA)
        put(DELTA)
        self.streaming.set()
        try:
            async with open_work():
                await self.over.wait()
                raise UnavailableError("the engine is closed")
        finally:
            self.stopped.set()


def loading_at_once() -> Core:
    core = Core()
    core.go_on.set()
    return core
