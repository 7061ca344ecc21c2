"""Processes that decode start wherever the server stands."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import trio
import trio_parallel
from sensorium.actors.media_decoding.workers import in_worker, open_workers
from sensorium.protocols.shared.panics import PanicError


@pytest.mark.slow
async def test_a_working_directory_that_is_gone_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stood, folder = tmp_path / "release-1", tmp_path / "files"
    for each in (stood, folder):
        each.mkdir()
    monkeypatch.chdir(stood)
    limiter = trio.CapacityLimiter(1)
    async with open_workers(str(folder), idle_s=60, max_bytes=1 << 33) as context:
        stood.rmdir()
        assert await in_worker(context, os.getcwd, limiter) == str(folder)


@pytest.mark.slow
async def test_whatever_a_job_does_is_an_error_of_that_job(tmp_path: Path) -> None:
    """A panic and an exit are raised as errors, in the same process; a crash is told as one."""
    limiter = trio.CapacityLimiter(1)
    async with open_workers(str(tmp_path), idle_s=60, max_bytes=1 << 33) as context:
        process = await in_worker(context, os.getpid, limiter)
        for deed in ("raise BaseException('a panic')", "raise SystemExit(3)", "raise KeyboardInterrupt"):
            with pytest.raises(PanicError):
                await in_worker(context, partial(exec, deed), limiter)
        assert await in_worker(context, os.getpid, limiter) == process
        for deed in ("import os; os.abort()", "import ctypes; ctypes.string_at(0)", "import os; os._exit(0)"):
            with pytest.raises(trio_parallel.BrokenWorkerError):
                await in_worker(context, partial(exec, deed), limiter)
        assert await in_worker(context, os.getpid, limiter) != process
