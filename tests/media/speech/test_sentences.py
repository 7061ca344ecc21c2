"""Segments are the whole text in order, short enough for a subtitle, and end where sentences do."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.speech.sentences import segments_of
from sensorium.media.speech.spoken_length import spoken_words
from sensorium.protocols.transcription.line_breaking import columns, fits_cue, lines
from sensorium.protocols.transcription.subtitles import MAX_CUE_S, cues, vtt
from sensorium.protocols.transcription.transcript import CueLayout, Segment, Transcript, Word

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
        assert is_one_word or fits_cue(shown, CueLayout())
        assert segment.end - segment.start <= MAX_CUE_S + 0.01


def transcript(text: str, words: list[Word], layout: CueLayout) -> Transcript:
    segments = tuple(
        Segment(number, 0, said.start, said.end, said.text, (), 0.0, 0.0, 1.0, 0.0)
        for number, said in enumerate(segments_of(text, words, layout))
    )
    return Transcript(text, "en", words[-1].end if words else 0.0, segments=segments, words=tuple(words))


@given(
    st.text(alphabet="ab  .,–今。카สำ", max_size=120),
    st.lists(st.floats(0, 1.5), min_size=1, max_size=7),
    st.builds(
        CueLayout,
        max_line_width=st.integers(1, 50),
        max_line_count=st.integers(1, 3),
        max_words_per_line=st.none() | st.integers(1, 6),
    ),
)
def test_cues_of_any_layout_have_the_words_and_no_more_than_is_asked(
    text: str, lengths: list[float], layout: CueLayout
) -> None:
    names = spoken_words(text)
    ends = list(itertools.accumulate(itertools.islice(itertools.cycle(lengths), len(names)), initial=0.0))
    words = [Word(name, *times) for name, times in zip(names, itertools.pairwise(ends), strict=True)]
    said = transcript(" ".join(text.split()), words, layout)
    found = cues(said, layout)
    assert "".join(cue.text for cue in found).replace(" ", "") == "".join(text.split())
    assert [word for cue in found for word in cue.words] == words
    times = [time for cue in found for time in (cue.start, cue.end)]
    assert times == sorted(times)
    for cue in found:
        shown = lines(cue.text, layout)
        assert len(shown) <= layout.max_line_count
        assert all(columns(line) <= layout.max_line_width or len(spoken_words(line)) == 1 for line in shown)
        assert all(len(spoken_words(line)) <= (layout.max_words_per_line or 999) for line in shown)
        assert len(cue.words) == 1 or cue.end - cue.start <= MAX_CUE_S + 0.001

    marked = vtt(said, layout, highlight_words=True)
    clocks = re.findall(r"\d+:\d\d:\d\d\.\d+", marked)
    assert clocks == sorted(clocks)
    underlined = re.findall(r"<u>(.*?)</u>", marked, re.DOTALL)
    seen = [word.word for word in words if word.end - word.start >= 0.002]
    left = iter(" ".join(each.split()) for each in underlined)
    assert all(word in left for word in seen), "each is underlined, in order"


def test_three_words_a_line_are_not_three_and_one() -> None:
    by_three = CueLayout(max_line_count=1, max_words_per_line=3)
    words = timed(["you", "have", "been", "kicked"])
    found = [segment.text.strip() for segment in segments_of("you have been kicked", words, by_three)]
    assert found == ["you have", "been kicked"]


def test_a_space_among_characters_is_a_comma() -> None:
    text = "今天天气很好我们去公园散步 " * 4
    assert {piece[-1] for piece in texts(text.strip())} == {"步"}
