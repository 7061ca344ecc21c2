"""Processes that decode, for files and for live streams; who uses them is
`actors/media_decoding/worker_pool.py` and `actors/live/container_decoder.py`, what runs in them
`media/worker.py`."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeVar

import trio
import trio_parallel

from ...media.sandbox import Protections, as_job, confine, should_retire
from ..runtime.panic_guard import contained

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_GRACE_S: Final = 5.0
"""How long idle ones get to leave at shutdown before they are killed."""


@asynccontextmanager
async def open_workers(
    folder: str, *, idle_s: float, max_bytes: int, niceness: int = 0
) -> AsyncIterator[trio_parallel.WorkerContext]:
    """Workers that are confined to `folder` for good, end when idle for `idle_s` seconds, and are replaced
    when they hold more than `max_bytes`. `niceness` lets others go first on the processors. Leaving
    waits for their jobs."""
    # An idle worker may have died, or has to be killed: it is gone, which is all that is wanted here.
    with suppress(trio_parallel.BrokenWorkerError):
        async with trio_parallel.open_worker_context(
            idle_timeout=idle_s,
            init=partial(confine, max_bytes, folder, niceness),
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


def log_protections(held: Protections | None) -> None:
    """Say what keeps those who decode files in."""
    has_all = held is not None and held.has_no_network and held.files != "none"
    logger.log(
        logging.INFO if has_all else logging.WARNING,
        "processes that decode files are kept from the network: %s; from files that are not theirs: %s",
        "yes" if held is not None and held.has_no_network else "no, the system does not let them",
        "no, the system does not let them" if held is None or held.files == "none" else f"by {held.files}",
    )
