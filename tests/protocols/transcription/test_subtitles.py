"""SRT and WebVTT."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.transcription.line_breaking import columns
from sensorium.protocols.transcription.line_breaking import lines as laid_out
from sensorium.protocols.transcription.subtitles import MAX_CUE_S, clock, cues, srt, vtt
from sensorium.protocols.transcription.transcript import CueLayout, Segment, Transcript, Word

USUAL = CueLayout()
LINE_COLUMNS = 42


def lines(text: str) -> list[str]:
    return laid_out(text, USUAL)


def transcript(*segments: tuple[float, float, str], text: str = "", duration: float = 2.0) -> Transcript:
    return Transcript(
        text=text,
        language="en",
        duration=duration,
        segments=tuple(
            Segment(index, 0, start, end, words, (), 0.0, 0.0, 1.0, 0.0)
            for index, (start, end, words) in enumerate(segments)
        ),
    )


def test_channels_are_voices_and_may_overlap() -> None:
    channels = (
        transcript((0.0, 3.0, "Is anybody there at all?")),
        transcript((1.0, 1.8, "Yes, but <not> very many.")),
    )
    both = Transcript("unused", "en", 4.0, channels=channels)
    assert [(cue.start, cue.channel) for cue in cues(both)] == [(0.0, 0), (1.0, 1)]
    assert vtt(both).count("<v Channel ") == 2
    assert "<v Channel 1>Yes, but &lt;not&gt; very many." in vtt(both)
    assert "<" not in srt(both).replace("<not>", "")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "00:00:00,000"),
        (59.9996, "00:01:00,000"),
        (3599.9994, "00:59:59,999"),
        (3600.0, "01:00:00,000"),
        (360_000.5, "100:00:00,500"),
        (-0.1, "00:00:00,000"),
    ],
)
def test_clock(seconds: float, expected: str) -> None:
    assert clock(seconds, ",") == expected


@given(st.integers(0, 400_000_000))
def test_clock_is_exact_to_the_millisecond(milliseconds: int) -> None:
    found = re.fullmatch(r"(\d{2,}):(\d\d):(\d\d)\.(\d{3})", clock(milliseconds / 1000, "."))
    assert found
    hours, minutes, seconds, rest = map(int, found.groups())
    assert ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest == milliseconds


def test_srt_numbers_cues_and_skips_empty_ones() -> None:
    assert srt(
        transcript((0.0, 1.0, " One --> two\n\nthree "), (1.0, 1.2, "  "), (3600.0, 3601.5, "Four"))
    ) == ("1\n00:00:00,000 --> 00:00:01,000\nOne -> two three\n\n2\n01:00:00,000 --> 01:00:01,500\nFour\n\n")


def test_vtt_escapes_cue_text() -> None:
    assert vtt(transcript((0.0, 1.0, "a < b & c --> d"))) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\na &lt; b &amp; c --&gt; d\n\n"
    )


def test_a_transcript_without_segments_is_one_cue_or_none() -> None:
    assert srt(transcript(text="All of it")) == "1\n00:00:00,000 --> 00:00:02,000\nAll of it\n\n"
    assert srt(transcript()) == ""
    assert vtt(transcript()) == "WEBVTT\n\n"


def shown(*segments: tuple[float, float, str], duration: float = 100.0) -> list[tuple[float, float, str]]:
    spaced = [(start, end, f" {text}") for start, end, text in segments]
    return [(cue.start, cue.end, cue.text) for cue in cues(transcript(*spaced, duration=duration))]


def test_lines_are_even_and_break_behind_punctuation() -> None:
    assert lines("Short.") == ["Short."]
    assert lines("I'm sorry, there are no matches for those keywords.") == [
        "I'm sorry, there are no",
        "matches for those keywords.",
    ]
    assert (
        lines("Press 1 to accept this call, or 2 to reject it at once.")[0] == "Press 1 to accept this call,"
    )
    assert lines("今天天气很好，我们去公园散步，然后一起吃晚饭，好不好？") == [
        "今天天气很好，我们去公园散步，",
        "然后一起吃晚饭，好不好？",
    ]
    assert lines("a" * 50) == ["a" * 50], "nowhere to break it"
    assert all(len(line) <= LINE_COLUMNS for line in lines("word " * 29 + "word"))


@pytest.mark.parametrize("word", ["a" * 40, "a" * 50, "气" * 20])
def test_any_number_of_lines(word: str) -> None:
    assert lines(" ".join([word] * 2000)) == [word] * 2000


def test_a_cue_of_two_words_joins_its_nearer_neighbour() -> None:
    said = [(0.0, 2.0, "Who is there at this hour?"), (2.4, 2.8, "Not you."), (2.9, 5.0, "Come in and sit.")]
    assert [text for _, _, text in shown(*said)] == [
        "Who is there at this hour?",
        "Not you. Come in and sit.",
    ]
    assert [text for _, _, text in shown(*said[:2])] == ["Who is there at this hour? Not you."]
    apart = [(0.0, 2.0, "Who is there at this hour?"), (20.0, 20.4, "Goodbye."), (40.0, 42.0, "That is all.")]
    assert [text for _, _, text in shown(*apart)] == [text for _, _, text in apart], "all that is said there"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Отменен.", " Спасибо."),
        ("Sí.", " ¡Aquí!"),
        ("네.", " 아니요."),
        ("ครับ", "ไม่"),
        ("ครับ", " ไม่"),
        ("是。", "OK"),
    ],
)
def test_a_cue_of_several_segments_is_written_as_the_text(first: str, second: str) -> None:
    segments = (0.1, 0.5, first), (0.7, 1.2, second), (1.5, 1.8, " Hm.")
    (cue,) = cues(transcript(*segments))
    assert cue.text == f"{first}{second} Hm."


def test_cues_stay_until_they_are_read() -> None:
    assert shown((0.0, 0.3, "Please come in now."), (5.0, 6.0, "Thank you very much."))[0][1] == 1.0
    assert shown((0.0, 0.3, "Please come in now."), (0.6, 4.0, "Thank you all very much."))[0][1] == 0.6
    assert shown((1.5, 1.7, "Please come in now."), duration=2.0)[-1][1] == 2.0


@given(
    st.lists(
        st.tuples(
            st.floats(0, 3), st.floats(0, 4), st.sampled_from(["a", "no.", "three small words", "w " * 40])
        ),
        max_size=12,
    )
)
def test_cues_are_in_order_can_be_shown_and_have_all_the_words(parts: list[tuple[float, float, str]]) -> None:
    at, segments = 0.0, list[tuple[float, float, str]]()
    for pause_s, length_s, text in parts:
        segments.append((at + pause_s, at + pause_s + length_s, text))
        at += pause_s + length_s
    found = cues(transcript(*((start, end, f" {text}") for start, end, text in segments), duration=at))
    assert " ".join(cue.text for cue in found).split() == " ".join(text for _, _, text in segments).split()
    times = [round(time, 6) for cue in found for time in (cue.start, cue.end)]
    assert times == sorted(times)
    assert all(columns(line) <= LINE_COLUMNS for cue in found for line in lines(cue.text))
    assert all(len(lines(cue.text)) <= 2 for cue in found)
    assert all(cue.end - cue.start <= MAX_CUE_S + 1e-6 for cue in found)


def test_each_word_is_underlined_while_it_is_spoken() -> None:
    words = (Word("Fish", 0.5, 1.0), Word("&", 1.0, 1.0), Word("chips.", 1.2, 1.5))
    said = msgspec.structs.replace(transcript((0.5, 1.5, " Fish & chips.")), words=words)
    assert vtt(said, highlight_words=True) == (
        "WEBVTT\n\n"
        "00:00:00.500 --> 00:00:01.000\n<u>Fish</u> &amp; chips.\n\n"
        "00:00:01.000 --> 00:00:01.200\nFish &amp; chips.\n\n"
        "00:00:01.200 --> 00:00:01.500\nFish &amp; <u>chips.</u>\n\n"
    )
    assert srt(said, CueLayout(max_line_width=7), highlight_words=True).startswith(
        "1\n00:00:00,500 --> 00:00:01,000\n<u>Fish</u> &\nchips.\n\n2\n"
    )
    untimed = msgspec.structs.replace(said, words=())
    assert vtt(untimed, highlight_words=True) == vtt(said)


def test_each_channel_has_its_own_words() -> None:
    first = msgspec.structs.replace(transcript((0.0, 2.0, "One")), words=(Word("One", 0.0, 2.0),))
    second = msgspec.structs.replace(transcript((1.0, 2.0, "Two")), words=(Word("Two", 1.0, 2.0),))
    both = Transcript("One Two", "en", 2.0, words=first.words + second.words, channels=(first, second))
    shown = vtt(both, highlight_words=True)
    assert "<v Channel 0><u>One</u>\n" in shown
    assert "<v Channel 1><u>Two</u>\n" in shown
