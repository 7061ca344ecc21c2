"""Utterances that stand in an answer again and again."""

from __future__ import annotations

import pytest
from sensorium.media.transcript.repetition import rows
from sensorium.protocols.transcription.transcript import Word


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("One, one, one. One one", [5]),
        ("7, 7, 7, 77", [5]),
        ("7777", [4]),
        ("Seven seven seven", []),  # too few
        ("No one, no one, no one. No one!", [4]),
        ("Thank you. Thank you. Thank you. Thank you. Thank", [4]),
        ("One, one, one, two", []),
        ("It's, it's, it's, it’s", []),
        ("эхо, эхо, Эхо, эхо", [4]),
        ("5, 9, 8, 7, 7, 7, 7, 7, 8, 1, 1, 1, 1", [4, 5]),  # the last row first
        ("Stop! No, no, no, no, no. Please.", [5]),
        ("", []),
        ("...", []),
    ],
)
def test_rows_are_found(text: str, counts: list[int]) -> None:
    found = list(rows(text))
    assert [len(row.ends) for row in found] == counts
    assert [text[row.start].isalnum() and text[row.end - 1].isalnum() for row in found] == [True] * len(found)


@pytest.mark.parametrize(
    ("text", "count", "left", "is_all"),
    [
        ("One, one, one. One, one.", 4, "One, one, one. One.", True),
        ("7, 7, 7, 77", 2, "7, 7", True),
        ("7, 7, 7, 7, 7,", 4, "7, 7, 7, 7,", True),
        ("No one, no one, no one. No one!", 1, "No one!", True),
        ("Thank you. Thank you. Thank you. Thank you. Thank", 3, "Thank you. Thank you. Thank you", True),
        ("One, one, one, one", 4, "One, one, one, one", True),
        ("One, one, one, one", 9, "One, one, one, one", True),
        ("Stop! No, no, no, no, no. Please.", 4, "Stop! No, no, no, no. Please.", False),
        ("598777778", 4, "59877778", False),
    ],
)
def test_copies_are_left_out(text: str, count: int, left: str, is_all: bool) -> None:
    (row,) = rows(text)
    assert row.shortened(text, count) == left
    assert row.is_all(text) == is_all


@pytest.mark.parametrize(
    ("words", "times_s"),
    [
        ("Stop! No, no, no, no, no. Please.", (1, 6)),
        ("7, 7, 7, 7, 8", (0, 4)),
        ("5 9 77777 8", (2, 3)),
        ("5 977777 8", None),
        ("5 9 777778", None),
    ],
)
def test_a_row_lasts_as_long_as_its_words(words: str, times_s: tuple[int, int] | None) -> None:
    timed = [Word(word, float(index), index + 1.0) for index, word in enumerate(words.split())]
    (row,) = rows(words)
    assert row.times_s(words, timed) == times_s
