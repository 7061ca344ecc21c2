"""SRT and WebVTT."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.subtitles import clock, srt, vtt
from sensorium.protocols.transcript import Segment, Transcript


def transcript(*segments: tuple[float, float, str], text: str = "") -> Transcript:
    return Transcript(
        text=text,
        language="en",
        duration=2.0,
        segments=tuple(
            Segment(index, 0, start, end, words, (), 0.0, 0.0, 1.0, 0.0)
            for index, (start, end, words) in enumerate(segments)
        ),
    )


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
