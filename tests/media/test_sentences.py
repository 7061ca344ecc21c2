"""Segments are the whole text in order, short enough for a subtitle, and end where sentences do."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.sentences import MAX_SEGMENT_CHARACTERS, MAX_SEGMENT_S, retimed, segments_of
from sensorium.media.spoken_length import spoken_words
from sensorium.protocols.transcript import Segment, Word

TEXTS = st.text(alphabet="abc  .,?!…今。", max_size=300)


def timed(names: list[str], *, length_s: float = 0.4, pauses: dict[int, float] | None = None) -> list[Word]:
    """Words one after the other, with silence in front of some."""
    words: list[Word] = []
    at = 0.0
    for index, name in enumerate(names):
        at += (pauses or {}).get(index, 0.0)
        words.append(Word(name, at, at + length_s))
        at += length_s
    return words


def texts(text: str) -> list[str]:
    return [segment.text for segment in segments_of(text, timed(spoken_words(text)))]


def test_sentences() -> None:
    text = 'Turn on the lights. "Is it late?" 3.5 is a number.'
    segments = segments_of(text, timed(text.split()))
    assert [segment.text for segment in segments] == [
        "Turn on the lights.",
        '"Is it late?"',
        "3.5 is a number.",
    ]
    assert (segments[0].start, round(segments[0].end, 1)) == (0.0, 1.6)
    assert texts("今天。明天？") == ["今天。", "明天？"]


def test_a_long_pause_ends_a_segment() -> None:
    words = timed(["one", "two", "three"], pauses={2: 1.5})
    assert [segment.text for segment in segments_of("one two three", words)] == ["one two", "three"]


def test_long_sentences_end_at_a_clause() -> None:
    head, tail = "one two three four five six seven, ", "eight " * 20
    assert texts(head + tail)[0] == head.strip()
    assert len(texts("word " * 40)) == 3


@given(TEXTS, st.floats(0.05, 2.0))
def test_segments_are_the_text_and_short(text: str, length_s: float) -> None:
    segments = segments_of(text, timed(spoken_words(text), length_s=length_s))
    assert "".join("".join(segment.text.split()) for segment in segments) == "".join(text.split())
    times = [time for segment in segments for time in (segment.start, segment.end)]
    assert times == sorted(times)
    for segment in segments:
        is_one_word = len(segment.text.split()) == 1
        assert is_one_word or len(segment.text) <= MAX_SEGMENT_CHARACTERS + 1
        assert segment.end - segment.start <= MAX_SEGMENT_S + 0.01


def segment(text: str, start: float, end: float) -> Segment:
    return Segment(0, 0, start, end, text, (), 0.0, 0.0, 1.0, 0.0)


def test_segments_take_the_times_of_their_words() -> None:
    segments = [segment(" Hello there.", 0.0, 4.0), segment(" Bye", 4.0, 8.0)]
    words = [Word("Hello", 0.5, 0.9), Word("there.", 0.9, 1.4), Word("Bye", 6.1, 6.4)]
    assert [(each.start, each.end) for each in retimed(segments, words)] == [(0.5, 1.4), (6.1, 6.4)]
    # The text was too long to be aligned: what has no words keeps its times.
    assert [(each.start, each.end) for each in retimed(segments, words[:2])] == [(0.5, 1.4), (4.0, 8.0)]
    assert retimed(segments, []) == tuple(segments)


@given(
    st.lists(st.tuples(st.sampled_from([" a", " bc d", "e", " fgh i. "]), st.floats(0, 9), st.floats(0, 9)))
)
def test_retimed_segments_are_in_order(parts: list[tuple[str, float, float]]) -> None:
    segments = [segment(text, min(a, b), max(a, b)) for text, a, b in parts]
    words = timed("".join(text for text, _, _ in parts).split())
    result = retimed(segments, words)
    assert [each.text for each in result] == [each.text for each in segments]
    assert all(each.start <= each.end for each in result)
    assert all(left.end <= right.start for left, right in itertools.pairwise(result))
