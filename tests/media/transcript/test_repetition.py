"""Answers that are one utterance again and again."""

from __future__ import annotations

import pytest
from sensorium.media.transcript.repetition import copies, with_copies


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One, one, one. One one", 5),
        ("7, 7, 7, 77", 5),
        ("7777", 4),
        ("Seven seven seven", 0),  # too few
        ("No one, no one, no one. No one!", 4),
        ("Thank you. Thank you. Thank you. Thank you. Thank", 4),
        ("One, one, one, two", 0),
        ("It's, it's, it's, it’s", 0),
        ("эхо, эхо, Эхо, эхо", 4),
        ("", 0),
        ("...", 0),
    ],
)
def test_copies_are_counted(text: str, count: int) -> None:
    assert len(copies(text)) == count


@pytest.mark.parametrize(
    ("text", "count", "left"),
    [
        ("One, one, one. One, one.", 4, "One, one, one. One."),
        ("7, 7, 7, 77", 2, "7, 7"),
        ("7, 7, 7, 7, 7,", 4, "7, 7, 7, 7,"),
        ("No one, no one, no one. No one!", 1, "No one!"),
        ("One, one, one, one", 4, "One, one, one, one"),
        ("One, one, one, one", 9, "One, one, one, one"),
        ("One, one, two.", 1, "One, one, two."),
    ],
)
def test_copies_are_left_out(text: str, count: int, left: str) -> None:
    assert with_copies(text, count) == left
    assert with_copies(left, count) == left
