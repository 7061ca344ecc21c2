"""How many processors there are is what the process may use of them; memory is
`tests/engine/models/test_memory.py`'s."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from sensorium.engine import control_groups
from sensorium.engine.control_groups import num_cores, num_processors


@pytest.mark.parametrize(
    ("group", "files", "most"),
    [
        ("0::/pod/box", {"pod/box/cpu.max": "150000 100000", "pod/cpu.max": "max 100000"}, 2),
        ("0::/pod/box", {"pod/box/cpu.max": "max 100000", "pod/cpu.max": "300000 100000"}, 3),
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        (
            "7:cpu,cpuacct:/old",
            {"cpu/old/cpu.cfs_quota_us": "200000", "cpu/old/cpu.cfs_period_us": "100000"},
            2,
        ),
        ("7:cpu:/old", {"cpu/old/cpu.cfs_quota_us": "-1", "cpu/old/cpu.cfs_period_us": "100000"}, 64),
        ("0::/pod", {"pod/cpu.max": "max 100000"}, 64),
        ("0::/pod", {"pod/cpu.max": "nonsense"}, 64),
        ("0::/pod", {}, 64),
    ],
)
def test_a_groups_share_bounds_it(
    group: str, files: dict[str, str], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    membership = tmp_path / "cgroup"
    membership.write_text(f"{group}\n3:memory:/x\n")
    for name, text in files.items():
        file = tmp_path / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert num_processors(membership, tmp_path / "fs") == most


def test_a_process_that_may_run_on_one_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert num_processors() == 1


@pytest.mark.parametrize(
    ("allowed", "siblings", "num"),
    [
        (range(8), [f"{i // 2 * 2}-{i // 2 * 2 + 1}" for i in range(8)], 4),
        (range(8), [f"{i % 4},{i % 4 + 4}" for i in range(8)], 4),
        ([0, 4, 5], [f"{i % 4},{i % 4 + 4}" for i in range(8)], 2),
        (range(2), ["0-1", "0-1"], 2),
        ([3], ["0-1", "0-1", "2-3", "2-3"], 1),
        (range(4), ["0", "1", "2", "3"], 4),
        (range(4), [], 4),
    ],
)
def test_halves_of_a_core_compute_as_one(
    allowed: Sequence[int], siblings: list[str], num: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(allowed), raising=False)
    monkeypatch.setattr(control_groups, "control_groups", lambda *_: [])
    for number, text in enumerate(siblings):
        folder = tmp_path / f"cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{text}\n")
    assert num_cores(tmp_path) == num
