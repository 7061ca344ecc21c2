"""Threads that find no memory to begin: who starts them is told, and the loop goes on."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
import trio
import trio._core._thread_cache as thread_cache
from sensorium.actors.runtime.thread_start import StartingThread
from sensorium.actors.runtime.threads import in_thread

pytestmark = pytest.mark.slow


def dropped(_: Callable[[], None], *__: object, **___: object) -> int:
    """As Python starts a thread for whose first frame there is no memory."""
    return 0


@pytest.fixture
def start_name() -> str:
    """What `threading.Thread.start` calls: Python 3.13 has another function."""
    names = ("_start_joinable_thread", "_start_new_thread")
    return next(name for name in names if hasattr(threading, name))


def test_a_thread_begins() -> None:
    done = threading.Event()
    thread = StartingThread(target=done.set)
    thread.start()
    thread.join(60)
    assert done.is_set()
    assert not thread.is_alive()


def test_a_start_that_would_wait_for_ever_fails(monkeypatch: pytest.MonkeyPatch, start_name: str) -> None:
    monkeypatch.setattr(threading, start_name, dropped)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        StartingThread(target=print).start()
    assert not threading._limbo  # type: ignore[attr-defined]


async def test_work_waits_for_memory_and_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch, start_name: str
) -> None:
    monkeypatch.setattr(thread_cache, "THREAD_CACHE", thread_cache.ThreadCache())  # without idle threads
    limiter = trio.CapacityLimiter(1)
    with monkeypatch.context() as patch, trio.move_on_after(1.0) as scope:
        patch.setattr(threading, start_name, dropped)
        await in_thread(int, limiter=limiter, max_wait_s=math.inf)
    assert scope.cancelled_caught
    assert await in_thread(int, limiter=limiter) == 0
