"""What of a machine this process may use where a control group bounds it: a container has fewer processors.

Linux tells by files, in version 1 and 2. Knows no torch. `engine/models/memory.py` asks for memory, `actors/`
for processors.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

MEMBERSHIP: Final = Path("/proc/self/cgroup")
ROOT: Final = Path("/sys/fs/cgroup")
TOPOLOGY: Final = Path("/sys/devices/system/cpu")


def control_groups(controller: str, membership: Path = MEMBERSHIP, root: Path = ROOT) -> list[Path]:
    """The folders of this process' groups that have a controller, versions 1 and 2, innermost first."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        inner = base / path.lstrip("/")
        folders += [each for each in (inner, *inner.parents) if each == base or base in each.parents]
    return folders


def num_processors(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int:
    """How many may work for this process at a time: those it may run on, and no more than its groups' time.

    1.5 processors are 2: a thread more than there is time for costs less than one that is missing.
    """
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in control_groups("cpu", membership, root):
        share = _share(folder)
        if share is not None:
            found = min(found, max(1, math.ceil(share)))
    return found


def num_cores(topology: Path = TOPOLOGY) -> int:
    """How many threads may compute at a time: as `num_processors`, but halves of one core count once, where
    the system tells which those are. On a Xeon two halves multiplied at 632 GFLOP/s, two cores at 1,590; the
    other halves have all else to do.

    Two at least, if there are as many: while one half of a core waits for memory the other may read.
    """
    if not hasattr(os, "sched_getaffinity"):
        return num_processors()
    return min(num_processors(), max(len(processors_by_core(topology)), 2))


def processors_by_core(topology: Path = TOPOLOGY) -> list[tuple[int, ...]]:
    """The processors that this process may use, those of one core together, in order; empty where the system
    does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores: dict[str, list[int]] = {}
    for number in sorted(os.sched_getaffinity(0)):
        cores.setdefault(_siblings(topology, number), []).append(number)
    return [tuple(processors) for processors in cores.values()]


def _siblings(topology: Path, number: int) -> str:
    """Names the core that a processor is of."""
    try:
        return (topology / f"cpu{number}/topology/thread_siblings_list").read_text()
    except OSError:
        return f"{number} alone"


def _share(folder: Path) -> float | None:
    """Processors' worth of time that one group lets its processes have; None if it says nothing."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):
        return None  # "max"
