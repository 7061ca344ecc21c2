"""How values spread: counts by bucket, as plain data that can be added up and sent elsewhere.

Buckets are those of Prometheus' histograms; `actors/telemetry/collectors.py` exports them.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import msgspec

SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)
"""Upper bounds of buckets, from a step of a small model to a long file."""
TOKENS: Final = tuple(float(2**exponent) for exponent in range(18))
"""Upper bounds of buckets for tokens of one request."""

DRAFTS: Final = (*map(float, range(16)), 31.0, 63.0)
"""Upper bounds of buckets for tokens of a draft that were right: position by position."""


class Distribution(msgspec.Struct, frozen=True):
    """Counts of values by bucket (not cumulative), the last one above all bounds; empty: no values."""

    counts: tuple[int, ...] = ()
    total: float = 0.0
    """Sum of the values."""

    def __add__(self, other: Distribution) -> Distribution:
        if not self.counts or not other.counts:
            return self if self.counts else other
        counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=True))
        return Distribution(counts, self.total + other.total)

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)


class Tally:
    """A distribution that grows."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    def distribution(self) -> Distribution:
        """As it is now."""
        return Distribution(tuple(self._counts), self._total)
