"""Percentiles, spreads and word error rates against known values."""

from __future__ import annotations

import math
import statistics

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.client.bench.statistics import (
    WordErrors,
    distribution,
    edit_distance,
    normalize_text,
    percentile,
    summarize,
    word_errors,
)

FLOATS = st.floats(-1e6, 1e6)


@given(st.lists(FLOATS, min_size=2))
def test_percentiles_are_the_standard_librarys_inclusive_quantiles(values: list[float]) -> None:
    hundredths = statistics.quantiles(values, n=100, method="inclusive")
    for percent in (1, 50, 95, 99):
        assert percentile(values, percent) == pytest.approx(hundredths[percent - 1], abs=1e-6)


def test_percentiles_of_little() -> None:
    assert math.isnan(percentile([], 50))
    assert percentile([3.0], 99) == 3.0
    assert percentile([1.0, 2.0], 50) == 1.5


def test_a_spread_is_the_range_over_the_rounds_that_measured_something() -> None:
    summary = summarize([[1.0, 3.0], [], [10.0]], lambda values: sum(values) / len(values))
    assert summary.value == pytest.approx(14 / 3)
    assert (summary.low, summary.high) == (2.0, 10.0)


def test_a_distribution_pools_all_rounds() -> None:
    values = distribution([[1.0, 2.0], [3.0]])
    assert (values.count, values.p50.value, values.p50.low, values.p50.high) == (3, 2.0, 1.5, 3.0)
    assert distribution([]).count == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Good morning, Alice!", ["good", "morning", "alice"]),
        ("¿Qué tiempo hace?", ["qué", "tiempo", "hace"]),
        ("  one\n two–three ", ["one", "two", "three"]),
        ("", []),
    ],
)
def test_normalised_words(text: str, words: list[str]) -> None:
    assert normalize_text(text) == words


WORDS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12)


@given(WORDS, WORDS)
def test_word_errors_are_jiwers(reference: list[str], hypothesis: list[str]) -> None:
    counted = word_errors(" ".join(reference), " ".join(hypothesis))
    assert counted.rate == pytest.approx(jiwer.wer(" ".join(reference), " ".join(hypothesis)))
    assert edit_distance(reference, hypothesis) == edit_distance(hypothesis, reference)


def test_word_errors_are_pooled_by_words_not_by_turns() -> None:
    total = word_errors("one two three four", "one two three four") + word_errors("five", "six")
    assert total == WordErrors(1, 5)
    assert total.rate == 0.2
    assert math.isnan(WordErrors().rate)
