"""Requests that are answered here and never reach the application: counted, and told at a bounded rate.

What is no HTTP, too large a head, one that comes too slowly, a connection for which there is no room, a
WebSocket opened wrongly. Whoever sends such things may send many, so the lines they cost are few; the counts
are exact. `actors/http/access_log.py` writes the lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .asgi_scope import Address
from .rate_limit import Allowance

_LOG_BURST: Final = 50
_LOGS_PER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """One such request. `method` and `path` are empty where they were not read."""

    status: int
    code: str
    request_id: str
    client: Address
    method: str = ""
    path: str = ""


Report = Callable[[Refusal, int], None]
"""Is given a refusal, and how many were not told since the last one."""


class Refusals:
    """Of one listener."""

    def __init__(self, report: Report = lambda _refusal, _num_unreported: None) -> None:
        self.num_by_status: Counter[int] = Counter()
        self._report = report
        self._num_unreported = 0
        self._lines = Allowance(burst=_LOG_BURST, per_s=_LOGS_PER_S)

    def note(self, refusal: Refusal) -> None:
        """Count it, and tell it unless that was done too often lately."""
        self.num_by_status[refusal.status] += 1
        if not self._lines.take():
            self._num_unreported += 1
            return
        unreported, self._num_unreported = self._num_unreported, 0
        self._report(refusal, unreported)
