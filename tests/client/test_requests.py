"""Forms, answers and event streams as values."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from msgspec import UNSET
from sensorium.client import APIError, TextDelta, TextDone, TextSegment
from sensorium.client.connection import status_error
from sensorium.client.realtime.transcription_machine import SessionOptions
from sensorium.client.requests import (
    check_status,
    given,
    parse_models,
    parse_transcript,
    streamed_transcription,
    transcription,
    transcription_form,
)
from sensorium.client.server_events import StreamDecoder
from sensorium.protocols.errors import NotFoundError
from sensorium.protocols.server.models import ModelCard, models_body
from sensorium.protocols.shared.event_stream import DONE, KEEP_ALIVE, error_body
from sensorium.protocols.transcription import rest
from sensorium.protocols.transcription.form import TranscriptionRequest, parse_transcription_form
from sensorium.protocols.transcription.transcript import (
    Segment,
    SpeechFilter,
    TimedSegment,
    Transcript,
    TranscriptionOptions,
    Word,
    with_words,
)

TRANSCRIPT = Transcript(
    text="good day",
    language="en",
    duration=1.5,
    languages=("en", "de"),
    segments=(Segment(0, 0, 0.0, 1.5, "good day", (1, 2), 0.0, -0.1, 1.0, 0.01, "en"),),
    words=(Word("good", 0.1, 0.5, 0.75), Word("day", 0.6, 1.0)),
    language_probability=0.5,
)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("word_timestamps", "; ask for `timestamp_granularities` word$"),
        ("hotwords", "; name words to expect by `keywords`$"),
        ("beam", r"; did you mean `beam_size`\?$"),
        ("xyz", "; there are: language, prompt, "),
    ],
)
def test_an_option_of_others_is_told_by_our_name(name: str, hint: str) -> None:
    options: dict[str, Any] = {name: True}
    with pytest.raises(TypeError, match=f"^{name!r} is not an option{hint}"):
        transcription_form("json", **options)


def test_a_hint_names_only_what_there_is() -> None:
    """A live session has no `vad_filter`."""
    with pytest.raises(TypeError, match="there are: language, "):
        given({"no_speech_threshold": 0.6}, SessionOptions)


def test_a_form_holds_what_was_asked_and_the_server_reads_it() -> None:
    form = transcription_form(
        model="m",
        response_format="verbose_json",
        language="en",
        prompt="Alice",
        languages=["en", "de"],
        keywords=["Ada Lovelace"],
        numerals="words",
        temperature=[0, 0.7],
        best_of=2,
        beam_size=4,
        length_penalty=0.5,
        patience=2,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        repetition_penalty=1.3,
        no_repeat_ngram_size=3,
        hallucination_silence_threshold=3,
        clip_timestamps=[10, 20.5, 65],
        timestamp_granularities=["word", "segment"],
    )
    fields = [
        (name, value)
        for name, values in form.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    request = parse_transcription_form(fields)
    assert request.model == "m"
    assert request.options == TranscriptionOptions(
        language="en",
        languages=("en", "de"),
        keywords=("Ada Lovelace",),
        numerals="words",
        prompt="Alice",
        temperature=0.0,
        fallback_temperatures=(0.7,),
        best_of=2,
        beam_size=4,
        length_penalty=0.5,
        patience=2.0,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        repetition_penalty=1.3,
        no_repeat_ngram_size=3,
        max_silence_s=3.0,
        clips=(10.0, 20.5, 65.0),
        word_timestamps=True,
        segment_timestamps=True,
    )
    with pytest.raises(ValueError, match="keywords is 'Ada': expected several"):
        transcription_form(model=None, response_format="json", keywords="Ada")


def test_what_is_not_given_is_left_to_the_server() -> None:
    assert transcription_form(model=None, response_format="json") == {"response_format": "json"}
    assert transcription_form(model=None, response_format="json", stream=True)["stream"] == "true"


def test_the_servers_verbose_answer_reads_back_whole() -> None:
    options = TranscriptionOptions(segment_timestamps=True, word_timestamps=True)
    request = TranscriptionRequest(model=None, options=options, response_format="verbose_json")
    found = parse_transcript(rest.render_transcript(TRANSCRIPT, request)[1])
    assert found == with_words(TRANSCRIPT)
    assert [word.word for word in found.segments[0].words] == [word.word for word in TRANSCRIPT.words]


def test_each_channel_reads_back() -> None:
    segments = tuple(msgspec.structs.replace(each, channel=1) for each in TRANSCRIPT.segments)
    words = tuple(msgspec.structs.replace(each, channel=1) for each in TRANSCRIPT.words)
    spoken = msgspec.structs.replace(TRANSCRIPT, segments=segments, words=words, language_probability=1.0)
    silent = Transcript("", "", TRANSCRIPT.duration)
    whole = msgspec.structs.replace(spoken, channels=(silent, spoken))
    for options in (
        TranscriptionOptions(multichannel=True, segment_timestamps=True, word_timestamps=True),
        TranscriptionOptions(multichannel=True),
    ):
        request = TranscriptionRequest(model=None, options=options, response_format="verbose_json")
        found = parse_transcript(rest.render_transcript(whole, request)[1])
        assert [channel.text for channel in found.channels] == ["", "good day"]
        if options.word_timestamps:
            assert found == with_words(whole)
        else:
            assert not found.channels[1].segments
    request = TranscriptionRequest(model=None, options=options, response_format="json")
    found = parse_transcript(rest.render_transcript(whole, request)[1])
    assert [(channel.text, channel.language) for channel in found.channels] == [("", ""), ("good day", "en")]


def test_objects_of_a_form_are_read_by_the_server() -> None:
    form = transcription_form(
        "json", vad_filter=True, vad_parameters={"threshold": 0.6, "speech_pad_ms": 50.0}
    )
    fields = [(name, text) for name, text in form.items() if isinstance(text, str)]
    speech_filter = parse_transcription_form(fields).options.speech_filter
    assert speech_filter == SpeechFilter(threshold=0.6, padding_ms=50)
    form = transcription_form("json", chunking_strategy={"type": "server_vad", "silence_duration_ms": 700})
    fields = [(name, text) for name, text in form.items() if isinstance(text, str)]
    speech_filter = parse_transcription_form(fields).options.speech_filter
    assert speech_filter == SpeechFilter(min_silence_ms=700, padding_ms=300)


def test_other_servers_answers_may_lack_fields() -> None:
    assert parse_transcript(b'{"text":"hi","usage":{}}') == Transcript("hi", "", 0.0)
    answer = parse_transcript(
        b'{"text":"hi","duration":"2.5","segments":[{"text":"hi","no_speech_prob":null}]}'
    )
    assert (answer.duration, answer.segments[0].text, answer.segments[0].no_speech_prob) == (2.5, "hi", 0.0)
    assert answer.segments[0].language is UNSET
    assert parse_transcript(b'{"text":"hi","languages":["en"]}').languages == ("en",)


def test_an_answer_that_is_no_transcript_is_an_api_error() -> None:
    with pytest.raises(APIError, match="not understood"):
        parse_transcript(b"<html>")


def test_models_read_back() -> None:
    assert [model.id for model in parse_models(models_body([ModelCard("m", 1)]))] == ["m"]


def test_the_servers_error_body_reads_back() -> None:
    with pytest.raises(APIError) as caught:
        check_status(404, error_body(NotFoundError("no such model", param="model")))
    error = caught.value
    assert (error.status, error.code, error.param, error.message) == (
        404,
        "not_found",
        "model",
        "no such model",
    )
    assert str(error) == "no such model (404, not_found, param: model)"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":"flat"}', "flat (502)"),
        (b'{"error":{"message":"m","code":400}}', "m (502, 400)"),
        (b"Bad Gateway", "Bad Gateway (502)"),
        (b"", "the server answered with status 502 (502)"),
        (b"[]", "[] (502)"),
        (
            b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>502 Bad Gateway</h1></body>",
            "a page answers, no server: 502 Bad Gateway (502)",
        ),
        (b"<html><body><h1>503 Busy\n</h1>", "a page answers, no server: 503 Busy (502)"),
        (b"<Error>", "<Error> (502)"),
    ],
)
def test_other_error_bodies_are_still_readable(body: bytes, message: str) -> None:
    assert str(status_error(502, body)) == message


def test_a_stream_is_the_servers_events() -> None:
    request = TranscriptionRequest(model=None, options=TranscriptionOptions(), stream=True)
    sent = KEEP_ALIVE + rest.delta_event("good") + rest.done_event(TRANSCRIPT, request) + DONE
    decoder = StreamDecoder()
    events = [event for line in sent.decode().splitlines() if (event := decoder.feed(line)) is not None]
    assert events == [TextDelta("good"), TextDone("good day")]


def test_a_stream_with_times_is_asked_for_by_them_and_has_segments() -> None:
    form = streamed_transcription(b"x", timestamp_granularities=["word"]).form
    assert form is not None
    fields = [
        (name, text)
        for name, value in form.items()
        for text in ([value] if isinstance(value, str) else value)
    ]
    request = parse_transcription_form(fields)
    assert (request.stream, request.options.word_timestamps) == (True, True)
    segment = TimedSegment(**msgspec.structs.asdict(TRANSCRIPT.segments[0]) | {"words": TRANSCRIPT.words})
    decoder = StreamDecoder()
    event = decoder.feed(rest.segment_event(segment).decode().strip())
    assert isinstance(event, TextSegment)
    assert (event.text, event.words) == (segment.text, segment.words)
    done = decoder.feed(rest.done_event(TRANSCRIPT, request).decode().strip())
    assert done == TextDone("good day", "en", 1.5)


def test_a_task_is_an_address() -> None:
    english = transcription(b"x", "srt", task="translate")
    assert (english.path, english.form) == ("/v1/audio/translations", {"response_format": "srt"})
    assert streamed_transcription(b"x", task="translate").path == "/v1/audio/translations"
    assert transcription(b"x", "json", task="transcribe").path == "/v1/audio/transcriptions"
    with pytest.raises(ValueError, match="transcribe or translate"):
        transcription(b"x", "json", task=cast(Any, "translation"))


def test_an_error_in_a_stream_is_raised_and_unknown_events_are_not() -> None:
    decoder = StreamDecoder()
    assert decoder.feed('data: {"type":"transcript.text.segment","id":"x"}') is None
    with pytest.raises(APIError, match="broke"):
        decoder.feed('data: {"error":{"message":"broke"}}')


def test_answers_are_bounded_in_what_an_error_shows() -> None:
    assert len(status_error(500, msgspec.json.encode("x" * 10_000)).message) <= 200
