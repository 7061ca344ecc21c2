"""Processes that decode, for files and for live streams; who uses them is `actors/media/actor.py` and
`actors/live/sound.py`, what runs in them `media/worker.py`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeVar

import trio
import trio_parallel

from ...media.confinement import as_job, confine, should_retire
from ..kernel.containment import contained

_T = TypeVar("_T")

_GRACE_S: Final = 5.0
"""How long idle ones get to leave at shutdown before they are killed."""


@asynccontextmanager
async def open_workers(
    folder: str, *, idle_s: float, max_bytes: int
) -> AsyncIterator[trio_parallel.WorkerContext]:
    """Workers that are confined to `folder` for good, end when idle for `idle_s` seconds, and are replaced
    when they hold more than `max_bytes`. Leaving waits for their jobs."""
    # An idle worker may have died, or has to be killed: it is gone, which is all that is wanted here.
    with suppress(trio_parallel.BrokenWorkerError):
        async with trio_parallel.open_worker_context(
            idle_timeout=idle_s,
            init=partial(confine, max_bytes, folder),
            retire=partial(should_retire, max_bytes),
            grace_period=_GRACE_S,
        ) as context:
            yield context


async def in_worker(
    context: trio_parallel.WorkerContext, job: Callable[[], _T], limiter: trio.CapacityLimiter
) -> _T:
    """Do `job` in one of them. Cancelling ends its process. Raises what the job raises, BrokenWorkerError."""
    try:
        os.chdir(os.getcwd())  # as a process that is started here does first
    except OSError:  # removed, or closed to this user, as root's home is where `sudo -u` was said in it
        os.chdir("/")
    with contained:
        outcome: _T = await context.run_sync(partial(as_job, job), cancellable=True, limiter=limiter)
        return outcome
