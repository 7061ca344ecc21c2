"""Decides how many engines a cluster has. Pure: time and what servers report are its arguments.

One more where requests have waited for too long, measured over the last 30 seconds; one less where an engine
has had nothing to do for minutes. After each change it looks at what comes of that before the next. Read
`cluster.py` for who asks, and does it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...protocols.engine.histograms import SECONDS, Distribution

WINDOW_S: Final = 30.0
PERCENTILE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of an engine now."""

    num_requests: int = 0
    """That run or wait there."""
    queue_s: Distribution = field(default_factory=Distribution)
    """How long requests waited there, since its start."""


@dataclass(frozen=True, slots=True)
class Grow:
    """One engine more."""

    queue_s: float
    """The percentile that was too high, in seconds; infinite above the largest bucket."""


@dataclass(frozen=True, slots=True)
class Shrink:
    """This engine is to be drained and ended."""

    address: str


@dataclass(slots=True)
class _Engine:
    busy_at: float
    """When it last had something to do, or became ready."""
    counts: deque[tuple[float, Distribution]] = field(default_factory=deque)
    """What it said and when: within the window, and the last before it."""

    def take(self, now: float, seen: Seen) -> None:
        last = self.counts[-1][1] if self.counts else Distribution()
        if seen.queue_s.count < last.count:  # its process began again
            self.counts.clear()
        if seen.num_requests or seen.queue_s.count != last.count:
            self.busy_at = now
        self.counts.append((now, seen.queue_s))
        while len(self.counts) > 1 and self.counts[1][0] <= now - WINDOW_S:
            self.counts.popleft()

    def counted(self) -> Sequence[int]:
        """Requests of the window, by bucket of how long they waited."""
        if not self.counts:
            return ()
        first, last = self.counts[0][1].counts, self.counts[-1][1].counts
        return [now - before for now, before in zip(last, first or (0,) * len(last), strict=True)]


class Scaler:
    """Keeps the number of engines between two bounds."""

    def __init__(
        self, min_replicas: int, max_replicas: int, *, scale_up_queue_s: float, scale_down_idle_s: float
    ) -> None:
        self.num_wanted = min_replicas
        """How many engines there should be."""
        self._min = min_replicas
        self._max = max_replicas
        self._queue_s = scale_up_queue_s
        self._idle_s = scale_down_idle_s
        self._engines: dict[str, _Engine] = {}
        self._changed_at = -math.inf

    def decide(
        self, now: float, ready: Mapping[str, Seen | None], *, is_changing: bool = False
    ) -> Grow | Shrink | None:
        """What to do, given the engines that are ready, by address, and what is seen of each; None: no server
        uses it now. To be asked about once a second.

        `is_changing`: an engine starts or drains, so that nothing is decided, nor before the window after
        that is over.
        """
        for address in self._engines.keys() - ready.keys():
            del self._engines[address]
        for address, seen in ready.items():
            engine = self._engines.setdefault(address, _Engine(now))
            if seen is not None:
                engine.take(now, seen)
        if is_changing:
            self._changed_at = now
        if now < self._changed_at + WINDOW_S:
            return None
        queue_s = self._waited()
        if queue_s > self._queue_s and self.num_wanted < self._max:
            self.num_wanted += 1
            self._changed_at = now
            return Grow(queue_s)
        if self.num_wanted > self._min and self._engines:
            idlest = min(self._engines, key=lambda address: self._engines[address].busy_at)
            if now - self._engines[idlest].busy_at >= self._idle_s:
                self.num_wanted -= 1
                self._changed_at = now
                return Shrink(idlest)
        return None

    def _waited(self) -> float:
        """The percentile of the time that requests of the window waited, in seconds; 0.0 if none did."""
        counts = [sum(each) for each in zip(*self._all_counted(), strict=True)]
        return percentile(counts, PERCENTILE)

    def _all_counted(self) -> list[Sequence[int]]:
        return [counted for engine in self._engines.values() if any(counted := engine.counted())]


def percentile(counts: Sequence[int], share: float) -> float:
    """Of values by bucket of `SECONDS`: linear within a bucket, infinite in the last, 0.0 without values."""
    rank, below = share * sum(counts), 0
    for index, count in enumerate(counts):
        if count and below + count >= rank:
            if index == len(SECONDS):
                return math.inf
            low = SECONDS[index - 1] if index else 0.0
            return low + (SECONDS[index] - low) * (rank - below) / count
        below += count
    return 0.0
