"""Segments are the whole text in order, short enough for a subtitle, and end where sentences do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.sentences import segments_of
from sensorium.media.spoken_length import spoken_words
from sensorium.protocols.subtitles import MAX_CUE_S, fits_cue
from sensorium.protocols.transcript import Word

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
    return [segment.text.strip() for segment in segments_of(text, timed(spoken_words(text)))]


def test_sentences() -> None:
    text = 'Turn on the lights. "Is it late?" 3.5 is a number.'
    segments = segments_of(text, timed(text.split()))
    assert [segment.text for segment in segments] == [
        "Turn on the lights.",
        ' "Is it late?"',
        " 3.5 is a number.",
    ]
    assert (segments[0].start, round(segments[0].end, 1)) == (0.0, 1.6)
    assert texts("今天。明天？") == ["今天。", "明天？"]


def test_a_long_pause_ends_a_segment() -> None:
    words = timed(["one", "two", "three"], pauses={2: 1.5})
    assert [segment.text for segment in segments_of("one two three", words)] == ["one two", " three"]


def test_long_sentences_are_cut_at_clauses_into_even_pieces() -> None:
    head, tail = "one two three four five six seven,", "eight " * 10
    assert texts(f"{head} {tail}")[0] == head
    lengths = [len(piece) for piece in texts("word " * 40)]
    assert len(lengths) == 3
    assert max(lengths) - min(lengths) <= 15
    said = "The others had been kind and even generous, as far as it had been in his power to do for them."
    assert texts(said) == [said[:43], said[44:]], "and not with two words by themselves"


def test_a_long_sentence_is_cut_at_a_pause_rather_than_in_a_phrase() -> None:
    names = [f"word{number:02d}" for number in range(16)]
    words = timed(names, length_s=0.3, pauses={6: 0.4})
    assert [segment.text.split() for segment in segments_of(" ".join(names), words)] == [names[:6], names[6:]]


@given(TEXTS, st.floats(0.05, 2.0))
def test_segments_are_the_text_and_can_be_shown(text: str, length_s: float) -> None:
    words = timed(spoken_words(text), length_s=length_s)
    segments = segments_of(text, words)
    assert "".join(segment.text for segment in segments) == (text if words else "")
    times = [time for segment in segments for time in (segment.start, segment.end)]
    assert times == sorted(times)
    for segment in segments:
        shown = " ".join(segment.text.split())
        is_one_word = len(spoken_words(shown)) == 1
        assert is_one_word or fits_cue(shown)
        assert segment.end - segment.start <= MAX_CUE_S + 0.01
