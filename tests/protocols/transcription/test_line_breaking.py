"""Lines of subtitles break between words, and where there are no spaces never within a character."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.shared.scripts import word_starts
from sensorium.protocols.transcription.line_breaking import columns, lines
from sensorium.protocols.transcription.transcript import CueLayout

WORDS = [
    "a",
    "no.",
    "Straße",
    "– and",
    "W" * 50,
    "今天。",
    "（好）",
    "カード",
    "か\u3099",
    "안녕하세요",
    "น้ำใจ",
    "ខ្មែរ",
]
WORDS += ["👍🏽", "👨\u200d👩\u200d👧", "好👍🏽", "e\u0301te\u0301", "กินข้าวเย็นด้วยกันนะครับ"]
LAYOUTS = st.builds(
    CueLayout,
    max_line_width=st.integers(1, 60),
    max_line_count=st.integers(1, 3),
    max_words_per_line=st.none() | st.integers(1, 8),
)
ONE = CueLayout(max_line_width=1)


def num_words(text: str) -> int:
    return len(word_starts(text))


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=30).map(" ".join), LAYOUTS)
def test_lines_have_all_the_words_and_are_as_wide_as_asked(text: str, layout: CueLayout) -> None:
    found = lines(text, layout)
    assert "".join("".join(found).split()) == "".join(text.split())
    limit = layout.max_words_per_line
    for line in found:
        assert line == line.strip()
        assert num_words(line) == 1 or columns(line) <= layout.max_line_width
        assert limit is None or num_words(line) <= limit
    for before, behind in itertools.pairwise(found):
        assert unicodedata.category(behind[0])[0] != "M"
        assert behind[0] not in "\u0e33\u200d🏽"
        assert before[-1] not in "\u17d2\u200d"


@pytest.mark.parametrize(
    "character",
    [
        *(
            "か\u3099",
            "カ\uff9e",
            "น้ำ",
            "ກຳ",
            "ខ្ម",
            "👍🏽",
            "👨\u200d👩",
            "e\u0301",
            "好\ufe00",
            "क\u094dष",
            "န\u1039တ",
        )
    ],
)
def test_no_line_ends_within_a_character(character: str) -> None:
    assert all(len(line) % len(character) == 0 for line in lines(character * 9, ONE))


def test_korean_breaks_at_spaces() -> None:
    text = "우리는 내일아침에 일찍일어나서 바다로여행을 떠날것입니다 정말로요"
    assert " ".join(lines(text, CueLayout())) == text


def test_what_has_no_spaces_breaks_where_it_must() -> None:
    thai = "สวัสดีครับวันนี้อากาศดีมากเราจะไปเดินเล่นที่สวนสาธารณะแล้วก็กินข้าว"
    usual = CueLayout()
    assert len(lines(thai, usual)) == 2
    assert max(map(columns, lines(thai, usual))) <= 42
    assert lines("สวัสดีครับ วันนี้อากาศดีมากเราจะไปเดินเล่นที่", usual)[0] == "สวัสดีครับ", "there is a space"
    assert lines("これはとてもながいカードだ", CueLayout(max_line_width=14)) == [
        "これはとても",
        "ながいカードだ",
    ]
    assert lines("いいカードだ", CueLayout(max_line_width=8)) == ["いい", "カードだ"], "no line begins so"


def test_words_are_counted_and_signs_are_none() -> None:
    by_two = CueLayout(max_words_per_line=2)
    assert lines("one – two three four five", by_two) == ["one – two", "three", "four five"]
    assert lines("今天天气", by_two) == ["今天", "天气"]
