"""Threads for work that blocks: where the system gives no further one, work waits for one, and nothing fails.

How many processes and threads there may be is bounded for a container, and for a user over all programs: so
others may use them up. Work that is given up goes on in its thread: see `outlasting`.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, TypeVarTuple

import trio

from ...protocols.errors import OverloadedError
from .panic_guard import contained
from .thread_start import use_in_trio

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_AGAIN_S: Final = 0.25
MAX_WAIT_S: Final = 5.0
_RETRY_AFTER_S: Final = 5.0
_MAX_END_S: Final = 60.0
_SHORT: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class _AtWork:
    """What the interpreter's end waits for, by threads of this process: a forked child has none of them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.ends: set[threading.Event] = set()
        self.beginning = threading.Lock()


use_in_trio()
_at_work: Final = _AtWork()
os.register_at_fork(after_in_child=_at_work.forget)


def is_short(error: BaseException) -> bool:
    """Whether a process could not be started for want of processes, threads, memory or descriptors."""
    is_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    return is_thread or (isinstance(error, OSError) and error.errno in _SHORT)


def short_of(what: str) -> OverloadedError:
    """What is said to who needed it."""
    return OverloadedError(f"The server has no {what} left for this now.", retry_after_s=_RETRY_AFTER_S)


async def in_thread(
    work: Callable[[*_Ts], _T],
    *args: *_Ts,
    limiter: trio.CapacityLimiter,
    abandon_on_cancel: bool = False,
    max_wait_s: float = MAX_WAIT_S,
) -> _T:
    """`trio.to_thread.run_sync`, which tries again where no thread can be started. What computes goes through
    `compute_pool.py`; what waits for the system has a `limiter` of its own.

    Raises what `work` raises, and OverloadedError where there is no thread for `max_wait_s`: give infinity
    where nobody can be told to come back.
    """
    has_begun = False

    def run() -> _T:
        nonlocal has_begun
        has_begun = True
        with contained:
            return work(*args)

    began = trio.current_time()
    while True:
        try:
            return await trio.to_thread.run_sync(run, abandon_on_cancel=abandon_on_cancel, limiter=limiter)
        except RuntimeError as error:
            waited_s = trio.current_time() - began
            if has_begun:
                raise
            if not waited_s:
                logger.error("work waits for a thread: %s", error)
            if waited_s >= max_wait_s:
                raise short_of("thread") from error
        await trio.sleep(_AGAIN_S)


@contextmanager
def outlasting() -> Iterator[None]:
    """A context for native code in a thread that its loop may leave behind: the interpreter's end waits for
    what has begun, for a minute at most (a device may never answer), and nothing begins any more.

    What computes without Python's lock, and wants it back from an interpreter that is going down, takes the
    process with it ("terminate called without an active exception", or a segmentation fault).
    """
    ended = threading.Event()
    with _at_work.beginning:
        _at_work.ends.add(ended)
    try:
        yield
    finally:
        _at_work.ends.discard(ended)
        ended.set()


@atexit.register
def _wait_for_all() -> None:
    _at_work.beginning.acquire()  # for good
    until = time.monotonic() + _MAX_END_S
    for ended in tuple(_at_work.ends):
        ended.wait(max(0.0, until - time.monotonic()))
