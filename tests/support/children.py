"""The processes a test starts, apart from those of servers that the tests of a session share."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import TypeAlias

Children: TypeAlias = Callable[[], list[BaseProcess]]


def children_from_now() -> Children:
    """Those that are started from now on and have not ended."""
    before = multiprocessing.active_children()
    return lambda: [child for child in multiprocessing.active_children() if child not in before]
