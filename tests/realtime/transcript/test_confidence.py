"""How sure the model is of each piece: the least likely of the tokens that a piece is made of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.transcription.transcript import TokenLogProb
from sensorium.realtime.transcript.confidence import certainties, share_of_capitals
from sensorium.realtime.transcript.pieces import units


def tokens(*given: tuple[bytes, float]) -> tuple[TokenLogProb, ...]:
    return tuple(
        TokenLogProb(data.decode(errors="replace"), data, math.log(certainty)) for data, certainty in given
    )


@pytest.mark.parametrize(
    ("text", "written", "expected"),
    [
        ("Hello there.", [(b" Hel", 0.9), (b"lo", 0.5), (b" there", 0.8), (b".", 0.3)], [0.5, 0.8, 0.3]),
        ("\u6771\u4eac", [(b"\xe6\x9d", 0.9), (b"\xb1", 0.4), (b"\xe4\xba\xac", 0.7)], [0.4, 0.7]),
        ("One two", [(b"One", 0.6), (b" ", 0.5), (b"two ", 0.9)], [0.6, 0.5]),
        ("Said before. And now", [(b"And", 0.6), (b" now", 0.7)], [1.0, 1.0, 1.0, 0.6, 0.7]),
        ("A loop was cut", [(b" A", 0.9), (b" loop", 0.9), (b" loop", 0.9)], [1.0, 1.0, 1.0, 1.0]),
        ("No tokens", [], [1.0, 1.0]),
        ("", [(b" you", 0.2)], []),
    ],
)
def test_a_piece_is_as_certain_as_its_least_likely_token(
    text: str, written: list[tuple[bytes, float]], expected: list[float]
) -> None:
    found = certainties(text, tokens(*written), units(text), 0)
    assert found == pytest.approx(expected)


def test_pieces_may_be_those_of_the_end_of_a_text_and_lack_its_last_marks() -> None:
    written = tokens((b" One", 0.1), (b" two", 0.6), (b" three", 0.8), (b".", 0.2))
    assert certainties("One two three.", written, [" two", " three"], 3) == pytest.approx([0.6, 0.8])


@given(st.lists(st.tuples(st.sampled_from(["one", "two", ".", "\u6771"]), st.floats(0.01, 1.0)), max_size=8))
def test_each_token_counts_for_the_piece_it_is_in(words: list[tuple[str, float]]) -> None:
    text = " ".join(word for word, _ in words)
    written = tokens(*((f" {word}".encode(), certainty) for word, certainty in words))
    pieces = [f" {word}" if index else word for index, (word, _) in enumerate(words)]
    assert certainties(text, written, pieces, 0) == pytest.approx([certainty for _, certainty in words])


def beginning(written: bytes, *likeliest: tuple[bytes, float]) -> tuple[TokenLogProb, ...]:
    logprobs = {data: math.log(certainty) for data, certainty in likeliest}
    first = TokenLogProb(written.decode(), written, logprobs[written], tuple(logprobs.items()))
    return first, *tokens((b" in", 0.7))


@pytest.mark.parametrize(
    ("likeliest", "share", "certainty"),
    [
        (((b" log", 0.3), (b" Log", 0.2), (b" Lagan", 0.1)), 0.5, 0.5),
        (((b" log", 0.3), (b"4", 0.5)), 0.0, 0.3),
        (((b" log", 0.04), ("\u6771".encode(), 0.9), (b"\xe6\x9d", 0.01)), None, 0.04),
        (((b" log", 0.6), (b" Log", 0.3)), 1 / 3, 0.9),
    ],
)
def test_of_a_first_word_case_and_certainty_are_known_apart(
    likeliest: tuple[tuple[bytes, float], ...], share: float | None, certainty: float
) -> None:
    first = beginning(b" log", *likeliest)
    assert share_of_capitals(first) == (None if share is None else pytest.approx(share))
    words = ["log", " in"]
    assert certainties("log in", first, words, 0, any_case=True) == pytest.approx([certainty, 0.7])
    assert certainties("log in", first, words, 0) == pytest.approx([dict(likeliest)[b" log"], 0.7])


def test_without_alternatives_nothing_is_known_of_the_case() -> None:
    assert share_of_capitals(()) is None
    assert share_of_capitals(tokens((b" Log", 0.9))) is None
