"""A program that forks with an engine and a stream open; the child uses them and leaves as programs do.

Prints the child's exit status, then a piece that the parent reads from the same stream.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress

import trio
from sensorium import LocalEngine
from sensorium.actors.local.core import LoadedLocal, LocalCore
from sensorium.actors.local.options import Delta
from sensorium.protocols.errors import UnavailableError


class Core(LocalCore):
    """Gives two deltas, then nothing more."""

    def __init__(self) -> None:
        super().__init__(self._load_it, max_running=1)

    def _load_it(self) -> LoadedLocal:
        return LoadedLocal(name="fake", run=self._run_it, text=None, speech=None)

    async def _run_it(self, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    async def stream(self, *given: object) -> None:
        put = given[-1]
        assert callable(put)
        put(Delta("first", (1,), None))
        put(Delta("second", (1,), None))
        await trio.sleep_forever()


def main() -> None:
    """See above."""
    engine = LocalEngine("fake")
    engine._core = Core  # type: ignore[method-assign]
    with engine:
        stream = engine.stream("x")
        next(stream)
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            with suppress(UnavailableError):
                next(stream)
                os._exit(3)
            del stream, engine
            gc.collect()
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        print(status, next(stream).text)


if __name__ == "__main__":
    main()
