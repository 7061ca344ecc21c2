"""What a reader of each format of a transcript sees, to be compared letter by letter."""

from __future__ import annotations

import html

from sensorium.protocols.transcription.subtitles import srt, vtt
from sensorium.protocols.transcription.transcript import Transcript


def letters(text: str) -> str:
    """All of it but white space."""
    return "".join(text.split())


def subtitle_letters(document: str) -> str:
    """Of the cues of an SRT or WebVTT document: what stands below their times."""
    cues = [block.split("\n") for block in document.split("\n\n") if "-->" in block]
    heads = [next(place for place, line in enumerate(cue) if "-->" in line) for cue in cues]
    shown = [line for cue, head in zip(cues, heads, strict=True) for line in cue[head + 1 :]]
    return letters(html.unescape("".join(shown)))


def assert_same_words(transcript: Transcript, *, has_words: bool) -> None:
    """Segments, words and both kinds of subtitles have the words of the text."""
    whole = letters(transcript.text)
    assert letters("".join(segment.text for segment in transcript.segments)) == whole
    assert not has_words or letters("".join(word.word for word in transcript.words)) == whole
    assert "".join(segment.text for segment in transcript.segments).strip() == transcript.text
    for document in (srt(transcript), vtt(transcript)):
        assert subtitle_letters(document) == whole
