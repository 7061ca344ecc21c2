"""A program that forks with an engine and a stream open; the child uses them and leaves as programs do.

Prints the child's exit status, then a piece that the parent reads from the same stream.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress

from sensorium import LocalEngine
from sensorium.protocols.errors import UnavailableError
from support.local_core import loading_at_once


def main() -> None:
    """See above."""
    engine = LocalEngine("fake")
    engine._core = loading_at_once  # type: ignore[method-assign]
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
