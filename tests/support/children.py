"""The processes a test starts, apart from those of servers that the tests of a session share."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeAlias

Children: TypeAlias = Callable[[], list[BaseProcess]]


def children_from_now() -> Children:
    """Those that are started from now on and have not ended."""
    before = multiprocessing.active_children()
    return lambda: [child for child in multiprocessing.active_children() if child not in before]


def engine_process() -> int:
    """The id of the child of this process that runs engines."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, rest = path.read_text().rsplit(")", 1)
            if int(rest.split()[1]) == os.getpid() and name.endswith("(sensorium-model"):
                return int(path.parent.name)
    raise AssertionError("there is none")
