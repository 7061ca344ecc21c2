"""Segments have their own words, those of several channels, too; bodies tell words once."""

from __future__ import annotations

import json

from msgspec import UNSET, UnsetType
from sensorium.protocols.transcription.form import TranscriptionRequest
from sensorium.protocols.transcription.rest import render_transcript
from sensorium.protocols.transcription.transcript import (
    Segment,
    Transcript,
    TranscriptionOptions,
    Word,
    with_words,
)


def segment(number: int, text: str, channel: int | UnsetType = UNSET) -> Segment:
    return Segment(number, 0, 0.0, 1.0, text, (), 0.0, 0.0, 1.0, 0.0, "en", channel)


def word(text: str, channel: int | UnsetType = UNSET) -> Word:
    return Word(text, 0.0, 0.1, 0.9, channel)


def dealt(transcript: Transcript) -> list[list[str]]:
    return [[each.word for each in segment.words] for segment in with_words(transcript).segments]


def test_each_segment_has_its_own() -> None:
    segments = (segment(0, " Set the lights."), segment(1, " Küche an."))
    words = tuple(map(word, ("Set", "the", "lights.", "Küche", "an.")))
    spoken = Transcript("Set the lights. Küche an.", "en", 2.0, segments=segments, words=words)
    assert dealt(spoken) == [["Set", "the", "lights."], ["Küche", "an."]]
    assert with_words(with_words(spoken)) == with_words(spoken)


def test_of_several_channels() -> None:
    segments = (segment(0, " Hello you", 0), segment(1, " Hi", 1), segment(2, " Bye", 0))
    words = (word("Hello", 0), word("Hi", 1), word("you", 0), word("Bye", 0))
    spoken = Transcript("Hello you Hi Bye", "en", 2.0, segments=segments, words=words)
    assert dealt(spoken) == [["Hello", "you"], ["Hi"], ["Bye"]]


def test_without_words_and_in_bodies() -> None:
    plain = Transcript("Hi", "en", 1.0, segments=(segment(0, " Hi"),))
    assert with_words(plain) == plain
    assert plain.segments[0].words == ()
    timed = Transcript("Hi", "en", 1.0, segments=(segment(0, " Hi"),), words=(word("Hi"),))
    options = TranscriptionOptions(segment_timestamps=True, word_timestamps=True)
    request = TranscriptionRequest(model=None, options=options, response_format="verbose_json")
    body = json.loads(render_transcript(timed, request)[1])
    assert "words" not in body["segments"][0]
    assert len(body["words"]) == 1
