"""What a function does in a forked child process, within a limit of time."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from typing import Final

_LIMIT_S: Final = 30.0
"""Of a child that hangs; one that works takes milliseconds."""


def in_fork(function: Callable[[], object]) -> str:
    """What `function` returns in a child of this process, as text, or what it raises: `TypeError: why`.

    The child runs no cleanup of this process. Raises TimeoutError, after the child is killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            try:
                outcome = str(function())
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            os.write(writing, outcome.encode()[:4096])
        finally:
            os._exit(0)
    os.close(writing)
    try:
        return _read(reading)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _read(pipe: int) -> str:
    """All that the child writes, which ends where it ends."""
    found, end = b"", time.monotonic() + _LIMIT_S
    while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(pipe, 4096)
        if not part:
            return found.decode()
        found += part
    raise TimeoutError(f"the child has not ended within {_LIMIT_S:g} s; it wrote {found!r}")
