"""Numbers out of measurements: percentiles with their spread, and word error rate.

Pure and dependency-free. A *spread* is how far a statistic moved between the rounds of one interleaved run.
Read next: `client/bench/bench.py`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

import msgspec


def percentile(values: Sequence[float], percent: float) -> float:
    """The `percent`-th percentile by linear interpolation between closest ranks; nan of nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


class Summary(msgspec.Struct, frozen=True):
    """A pooled statistic and the least and greatest value a single round gave."""

    value: float
    low: float
    high: float


class Distribution(msgspec.Struct, frozen=True):
    """What one kind of latency looked like over all rounds; seconds in, the unit of the input out."""

    count: int
    p50: Summary
    p95: Summary
    p99: Summary


def summarize(rounds: Sequence[Sequence[float]], statistic: Callable[[Sequence[float]], float]) -> Summary:
    """`statistic` over all rounds pooled, with its range over the rounds that measured anything."""
    each = [statistic(values) for values in rounds if values]
    pooled = [value for values in rounds for value in values]
    if not each:
        return Summary(float("nan"), float("nan"), float("nan"))
    return Summary(statistic(pooled), min(each), max(each))


def distribution(rounds: Sequence[Sequence[float]]) -> Distribution:
    """Percentiles over all rounds, with their spread between rounds."""
    return Distribution(
        count=sum(len(values) for values in rounds),
        p50=summarize(rounds, lambda values: percentile(values, 50)),
        p95=summarize(rounds, lambda values: percentile(values, 95)),
        p99=summarize(rounds, lambda values: percentile(values, 99)),
    )


def normalize_text(text: str) -> list[str]:
    """Lower-case words without punctuation or symbols (marks, such as accents, stay)."""
    kept = (
        " " if unicodedata.category(character)[0] in "PS" else character
        for character in unicodedata.normalize("NFKC", text).lower()
    )
    return "".join(kept).split()


def edit_distance(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Fewest substitutions, insertions and deletions that turn one into the other (Levenshtein)."""
    previous = list(range(len(hypothesis) + 1))
    for row, word in enumerate(reference, 1):
        current = [row]
        for column, other in enumerate(hypothesis, 1):
            substitution = previous[column - 1] + (word != other)
            current.append(min(substitution, previous[column] + 1, current[column - 1] + 1))
        previous = current
    return previous[-1]


class WordErrors(msgspec.Struct, frozen=True):
    """Word errors that can be pooled by addition."""

    errors: int = 0
    words: int = 0

    @property
    def rate(self) -> float:
        """Errors per reference word; nan without reference words."""
        return self.errors / self.words if self.words else float("nan")

    def __add__(self, other: WordErrors) -> WordErrors:
        return WordErrors(self.errors + other.errors, self.words + other.words)


def word_errors(reference: str, hypothesis: str) -> WordErrors:
    """Word errors of one transcript after `normalize_text` of both sides."""
    expected = normalize_text(reference)
    return WordErrors(edit_distance(expected, normalize_text(hypothesis)), len(expected))
