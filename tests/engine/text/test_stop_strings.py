"""What is found and what is held back depends on the text alone, as a naive search over all of it says."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.text.stop_strings import StopStrings
from support.tokenizers import first_stop

stops = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3)
texts = st.text("abc", max_size=30)
cuts = st.lists(st.integers(0, 30), max_size=8)


def split(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@given(texts, stops, cuts)
def test_every_way_of_cutting_finds_the_same(text: str, stops: list[str], cuts: list[int]) -> None:
    search = StopStrings(stops)
    released, found = "", None
    for part in split(text, cuts):
        free, found = search.push(part)
        released += free
        if found is not None:
            break
    if found is None:
        released += search.held
    assert (released, found) == first_stop(text, stops)


@given(texts, stops)
def test_only_what_may_be_the_beginning_of_a_stop_string_is_held(text: str, stops: list[str]) -> None:
    search = StopStrings(stops)
    so_far = ""
    for character in text:
        _, found = search.push(character)
        so_far += character
        if found is not None:
            return
        beginnings = [stop[:size] for stop in stops for size in range(len(stop))]
        assert search.held == max((each for each in beginnings if so_far.endswith(each)), key=len)


def test_what_repeats_itself_is_found_in_what_repeats_itself() -> None:
    words = ["".join(letters) for size in range(1, 8) for letters in itertools.product("ab", repeat=size)]
    for stop in words[:62]:  # up to five letters
        for text in words[126:]:
            found = StopStrings([stop]).push(text)[1]
            assert (found is not None) == (stop in text), (stop, text)


def test_the_one_that_ends_first_wins_and_of_two_the_longest() -> None:
    assert StopStrings(["abcd", "bc"]).push("xabcd") == ("xa", "bc")
    assert StopStrings(["c", "abc"]).push("xabc") == ("x", "abc")
