"""Where text may be cut: the joined pieces are the text, and no character is ever cut."""

from __future__ import annotations

import pytest
import regex  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from sensorium.realtime.transcript.pieces import pieces, units, weight

awkward = st.text(
    alphabet="ab .!,)'\u0301\u200c\u200d\ufe0f東京が。！จำแ\u3099\uff9e\U000e0100👩🏽❤🇩🇪\u1102\u1161"
    "မြန်မာភាសាខ្មែរ\r\n",
    max_size=12,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("turn on", ["turn", " on"]),
        ("東京へ go", ["東", "京", "へ", " go"]),
        ("안녕 세상", ["안녕", " 세상"]),
        ("จ้า", ["จ้", "า"]),
        ("น้ำ", ["น้ำ"]),
        ("ភាសា", ["ភា", "សា"]),
        ("葛\U000e0100城", ["葛\U000e0100", "城"]),
        ("a \n b ", ["a", " \n b", " "]),
        ("Well, ok.", ["Well,", " ok."]),
    ],
)
def test_pieces(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Well, (ok) 50%!", ["Well", ",", " (ok", ")", " 50", "%!"]),
        ("3.5 don't U.S.", ["3.5", " don't", " U.S", "."]),
        ("...", ["..."]),
        ("東京。", ["東", "京", "。"]),
    ],
)
def test_units_part_words_from_the_punctuation_behind_them(text: str, expected: list[str]) -> None:
    assert units(text) == expected


@pytest.mark.parametrize(
    ("piece", "expected"),
    [(" on", 2), ("7", 2), ("東", 1), ("น้ำ", 1), (".", 0), (" ♪", 0), ("。", 0), (" ", 0)],
)
def test_weight(piece: str, expected: int) -> None:
    assert weight(piece) == expected


@given(st.text(max_size=30, alphabet=st.characters(max_codepoint=0x2FF)) | awkward)
def test_cuts_are_between_characters_as_readers_see_them(text: str) -> None:
    boundaries = {match.start() for match in regex.finditer(r"\X", text)}
    for cut in (pieces, units):
        assert "".join(cut(text)) == text
        position = 0
        for piece in cut(text):
            assert position in boundaries
            position += len(piece)


@given(st.text(max_size=40))
def test_any_text_comes_back(text: str) -> None:
    assert "".join(pieces(text)) == "".join(units(text)) == text
