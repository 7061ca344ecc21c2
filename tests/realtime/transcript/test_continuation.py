"""Behind a contradicted text no word is lost, and a wrong word costs no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.realtime.transcript.continuation import continuation


@pytest.mark.parametrize(
    ("released", "final", "rest"),
    [
        ("", "One two.", "One two."),
        ("One", "One two.", " two."),
        ("ninety", "ninety-one", "-one"),
        ("one too", "one two three", " three"),
        ("One, two", "one two three", " three"),
        ("a b c", "b c d", " d"),
        ("b c", "a b c d", " d"),
        ("a x b c", "a b c d", " d"),
        ("one two three", "one", ""),
        ("x", "", ""),
        ("我是", "我不是人", "人"),
    ],
)
def test_continuation(released: str, final: str, rest: str) -> None:
    assert continuation(released, final) == rest


words = st.lists(st.sampled_from(["a", "b", "c", "d,"]), max_size=80).map(" ".join)


@given(released=words, final=words)
def test_a_continuation_is_an_ending(released: str, final: str) -> None:
    rest = continuation(released, final)
    assert final.endswith(rest)
    if final.startswith(released):
        assert released + rest == final


@given(spoken=words, start=st.integers(0, 60), rest=words)
def test_one_wrong_word_costs_no_other(spoken: str, start: int, rest: str) -> None:
    before = spoken.split()
    if not before:
        return
    wrong = list(before)
    wrong[start % len(wrong)] = "wrong"
    final = " ".join([*before, "now", *rest.split()])
    assert continuation(" ".join(wrong), final).split()[:1] == ["now"]


def test_a_long_contradiction_is_compared_within_bounds() -> None:
    released = " ".join(f"old{index}" for index in range(2000))
    final = " ".join(f"new{index}" for index in range(2100))
    rest = continuation(released, final)
    assert 40 <= len(rest.split()) <= 132
