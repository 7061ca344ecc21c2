"""Temporary folders: no longer there than who made them, or than the next server's start."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path

import pytest
from sensorium.actors.errors import ConfigError
from sensorium.actors.runtime.temp_files import in_own_folders, own_folder


async def test_where_nothing_can_be_written_the_start_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a container's root is read-only and nothing is mounted at /tmp."""

    async def serve(_: str) -> None:
        raise AssertionError("there is no folder")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"no folder for temporary files .*missing/.*; TMPDIR names"):
        await in_own_folders(serve)


def test_what_a_killed_server_has_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with own_folder() as folder:
        name = Path(folder).name
    assert not Path(folder).exists()
    left, locked, new = (tmp_path / (name[:-8] + letter * 8) for letter in "abc")
    others = [tmp_path / "sensorium-mine", tmp_path / (name[:-8] + "notes")]
    for each in (left, locked, new, *others):
        each.mkdir()
        (each / "upload").write_bytes(b"x")
        if each != new:
            os.utime(each, (time.time() - 90,) * 2)
    handle = os.open(locked, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with own_folder() as folder:
            found = set(tmp_path.iterdir())
    finally:
        os.close(handle)
    assert found == {Path(folder), locked, new, *others}
