"""Processes that decode start wherever the server stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
from sensorium.actors.media.workers import in_worker, open_workers


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
