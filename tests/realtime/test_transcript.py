"""Which text is released: agreed twice, never taken back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.realtime.transcript import TranscriptPolicy, pieces

texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(["one", "two", "three", "four", "東", "京", "จ้า", "."]), max_size=8).map(
        " ".join
    ),
    st.lists(st.sampled_from(["a", "b", "東", "京", "จ้า", " "]), max_size=12).map("".join),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("turn on", ["turn", " on"]),
        ("東京へ go", ["東", "京", "へ", " go"]),
        ("안녕 세상", ["안녕", " 세상"]),
        ("จ้า", ["จ้", "า"]),
        ("a \n b ", ["a", " \n b", " "]),
    ],
)
def test_pieces(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_words_are_released_when_two_hypotheses_agree_and_the_last_is_held() -> None:
    policy = TranscriptPolicy(hold_words=1)
    assert policy.observe("set a tie") == ""
    assert policy.observe("set a timer for") == "set a"
    assert policy.observe("set a timer for two") == " timer for"
    assert policy.observe("set a timer for two") == ""
    assert policy.finish("set a timer for two minutes") == " two minutes"
    assert not policy.corrected


def test_disagreement_with_released_text_releases_nothing_until_it_agrees_again() -> None:
    policy = TranscriptPolicy()
    policy.observe("the cat sat down")
    assert policy.observe("the cat sat down") == "the cat sat"
    assert policy.observe("a cat sat down") == ""
    assert policy.observe("a cat sat down here") == ""
    policy.observe("the cat sat down here now")
    assert policy.observe("the cat sat down here now") == " down here"


def test_a_final_that_contradicts_releases_nothing_more() -> None:
    policy = TranscriptPolicy()
    policy.observe("one two three")
    assert policy.observe("one two three") == "one two"
    assert policy.finish("ten two three") == ""
    assert policy.corrected
    assert policy.released == "one two"


def test_unspaced_scripts_agree_by_character() -> None:
    policy = TranscriptPolicy()
    policy.observe("東京は")
    assert policy.observe("東京都に") == "東京"


@given(texts)
def test_pieces_join_to_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text


@given(st.lists(texts, max_size=8), texts, st.integers(0, 3))
def test_released_text_only_grows_and_ends_as_the_final(
    hypotheses: list[str], final: str, hold_words: int
) -> None:
    policy = TranscriptPolicy(hold_words)
    shown = ""
    for text in hypotheses:
        shown += policy.observe(text)
        assert shown == policy.released
    rest = policy.finish(final)
    if policy.corrected:
        assert rest == ""
        assert not final.startswith(shown)
    else:
        assert shown + rest == final


@given(texts, st.integers(0, 3))
def test_a_repeated_hypothesis_releases_all_but_the_held_words(text: str, hold_words: int) -> None:
    policy = TranscriptPolicy(hold_words)
    released = policy.observe(text) + policy.observe(text) + policy.observe(text)
    assert released == "".join(pieces(text)[: max(0, len(pieces(text)) - hold_words)])
