"""Threads that the system does not give: work waits for one, is done once, and who is not patient is told."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import pytest
import trio
from sensorium.actors.runtime import threads
from sensorium.actors.runtime.threads import in_thread, is_short
from sensorium.protocols.errors import OverloadedError
from support.no_threads import refusing_threads
from trio.testing import MockClock


async def test_work_waits_for_a_thread_and_is_done_once(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    refused, done = refusing_threads(monkeypatch, until_s=20), list[str]()
    limiter = trio.CapacityLimiter(1)
    await in_thread(done.append, "it", limiter=limiter, max_wait_s=math.inf)
    assert done == ["it"]
    assert len(refused) > 1
    assert not limiter.borrowed_tokens


async def test_a_request_is_told_to_come_back(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    refusing_threads(monkeypatch, until_s=20)
    done = list[str]()
    with pytest.raises(OverloadedError, match="no thread") as refused:
        await in_thread(done.append, "it", limiter=trio.CapacityLimiter(1))
    assert refused.value.retry_after_s == trio.current_time() == 5
    assert not done
    (line,) = caplog.messages
    assert "can't start new thread" in line


async def test_what_the_work_itself_raises_is_raised_and_not_tried_again() -> None:
    done = list[int]()

    def work() -> None:
        done.append(1)
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match="can't start"):
        await in_thread(work, limiter=trio.CapacityLimiter(1))
    assert done == [1]


def test_what_serves_has_no_other_way_to_a_thread() -> None:
    """Where models load, a failure is told to who started the server; `local` has no server. What `cluster`
    runs serves no clients, and asks Ray, which blocks."""
    rooms = Path(threads.__file__).parents[1]
    users = {
        str(path.relative_to(rooms))
        for path in rooms.rglob("*.py")
        if "to_thread.run_sync" in path.read_text() and path.relative_to(rooms).parts[0] != "local"
    }
    cluster = {"cluster/child.py", "cluster/ray_launcher.py"}
    assert users == {"engines.py", "runtime/threads.py", "engine_process/child.py", "server.py", *cluster}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), True),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), True),
        (RuntimeError("can't start new thread"), True),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), False),
        (RuntimeError("something else"), False),
    ],
)
def test_what_the_system_is_short_of(error: Exception, expected: bool) -> None:
    assert is_short(error) == expected
