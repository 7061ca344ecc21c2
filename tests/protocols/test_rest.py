"""Transcription forms and bodies, in OpenAI's shapes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Model
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
    TranslationVerbose,
)
from sensorium.protocols import rest
from sensorium.protocols.errors import BadRequestError, NotFoundError, OverloadedError
from sensorium.protocols.rest import ModelCard, ResponseFormat, TranscriptionRequest, parse_transcription_form
from sensorium.protocols.transcript import Segment, TokenLogProb, Transcript, TranscriptionOptions, Word

TRANSCRIPT = Transcript(
    text="Küche an.",
    language="de",
    duration=1.5,
    segments=(Segment(0, 0, 0.0, 1.5, " Küche an.", (1, 2), 0.0, -0.2, 1.1, 0.01),),
    words=(Word("Küche", 0.0, 0.7), Word("an.", 0.8, 1.4)),
    num_input_tokens=75,
    num_output_tokens=4,
    tokens=(TokenLogProb("Küche", "Küche".encode(), -0.25),),
)


def parse(*fields: tuple[str, str]) -> TranscriptionRequest:
    return parse_transcription_form([("model", "small"), *fields])


def test_an_empty_form_has_the_defaults() -> None:
    request = parse_transcription_form([])
    assert request == TranscriptionRequest(model=None, options=TranscriptionOptions())


def test_every_field() -> None:
    request = parse(
        ("language", "DE"),
        ("prompt", "Küche"),
        ("response_format", "verbose_json"),
        ("temperature", "0.4"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "segment"),
        ("chunking_strategy", "auto"),
        ("seed", "42"),
        ("stream", "false"),
        ("max_completion_tokens", "ignored"),
    )
    options = request.options
    assert (request.model, request.response_format, request.stream) == ("small", "verbose_json", False)
    assert (options.language, options.prompt, options.temperature, options.seed) == ("de", "Küche", 0.4, 42)
    assert options.word_timestamps
    assert options.segment_timestamps


@pytest.mark.parametrize(
    ("response_format", "granularities", "expected"),
    [
        ("verbose_json", [], (True, False)),
        ("verbose_json", ["word"], (False, True)),
        ("srt", [], (True, False)),
        ("vtt", [], (True, False)),
        ("json", [], (False, False)),
    ],
)
def test_what_is_timed(response_format: str, granularities: list[str], expected: tuple[bool, bool]) -> None:
    fields = [("timestamp_granularities", value) for value in granularities]
    options = parse(("response_format", response_format), *fields).options
    assert (options.segment_timestamps, options.word_timestamps) == expected


def test_streaming_and_logprobs() -> None:
    request = parse(("stream", "True"), ("include[]", "logprobs"))
    assert request.stream
    assert request.options.logprobs


def test_translation() -> None:
    assert parse_transcription_form([], task="translate").options.task == "translate"


@pytest.mark.parametrize(
    "fields",
    [
        [("chunking_strategy", '{"type":"server_vad","threshold":0.4}')],
        [("chunking_strategy[type]", "server_vad"), ("chunking_strategy[silence_duration_ms]", "200")],
    ],
)
def test_chunking_strategies_are_accepted(fields: list[tuple[str, str]]) -> None:
    assert parse(*fields).options == TranscriptionOptions()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ([("response_format", "xml")], "response_format"),
        ([("response_format", "diarized_json")], "response_format"),
        ([("temperature", "1.5")], "temperature"),
        ([("temperature", "-1")], "temperature"),
        ([("temperature", "nan")], "temperature"),
        ([("temperature", "warm")], "temperature"),
        ([("language", "english")], "language"),
        ([("language", "e1")], "language"),
        ([("language", "en-US")], "language"),
        ([("timestamp_granularities[]", "word")], "timestamp_granularities"),
        (
            [("response_format", "verbose_json"), ("timestamp_granularities[]", "x")],
            "timestamp_granularities",
        ),
        ([("stream", "maybe")], "stream"),
        ([("stream", "true"), ("response_format", "srt")], "stream"),
        ([("chunking_strategy", "sometimes")], "chunking_strategy"),
        ([("chunking_strategy", '{"type":"client_vad"}')], "chunking_strategy"),
        ([("chunking_strategy[threshold]", "0.5")], "chunking_strategy"),
        ([("chunking_strategy", "[" * 50_000)], "chunking_strategy"),
        ([("include[]", "everything")], "include"),
        ([("include[]", "logprobs"), ("response_format", "text")], "include"),
        ([("seed", "-1")], "seed"),
        ([("seed", "²")], "seed"),
        ([("seed", str(2**63))], "seed"),
        ([("prompt", "x" * 10_001)], "prompt"),
        ([("keywords[]", "Kiel"), ("keywords[]", "x" * 101)], "keywords[1]"),
        ([("keywords", "Kiel")] * 101, "keywords"),
        ([("languages[]", "en"), ("languages[]", "english")], "languages[1]"),
        ([("languages", "en")] * 33, "languages"),
        ([("known_speaker_names", "Ada")], "known_speaker_names"),
        ([("model", "again")], "model"),
    ],
)
def test_refusals_name_the_field(fields: list[tuple[str, str]], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(*fields)
    assert caught.value.param == param
    assert f"`{param}" in caught.value.message
    assert len(caught.value.message) < 200


def test_languages_and_keywords_are_lists_of_distinct_entries() -> None:
    request = parse(
        ("languages[]", "EN"),
        ("languages", "de"),
        ("languages[]", "en"),
        ("keywords[]", ""),
        ("keywords[]", " New\n  York "),
        ("keywords[]", "Kiel"),
        ("keywords[]", "New York"),
    )
    assert request.options.languages == ("en", "de")
    assert request.options.keywords == ("New York", "Kiel")


names = st.sampled_from(
    [
        "languages[]",
        "keywords[]",
        "model",
        "language",
        "prompt",
        "response_format",
        "temperature",
        "stream",
        "seed",
        "include[]",
        "chunking_strategy",
    ]
)


@given(st.lists(st.tuples(names, st.text(max_size=12)), max_size=4))
def test_any_form_is_parsed_or_refused_by_name(fields: list[tuple[str, str]]) -> None:
    try:
        parse_transcription_form(fields)
    except BadRequestError as error:
        assert error.param  # noqa: PT017


def render(response_format: ResponseFormat, options: TranscriptionOptions | None = None) -> tuple[str, str]:
    request = TranscriptionRequest(
        model="small", options=options or TranscriptionOptions(), response_format=response_format
    )
    content_type, body = rest.render_transcript(TRANSCRIPT, request)
    return content_type, body.decode()


def test_json() -> None:
    content_type, body = render("json", TranscriptionOptions(logprobs=True))
    assert content_type == "application/json"
    parsed = Transcription.model_validate_json(body, strict=True)
    assert parsed.text == "Küche an."
    assert not parsed.model_extra
    assert json.loads(body)["usage"] == {
        "type": "tokens", "input_tokens": 75, "output_tokens": 4, "total_tokens": 79
    }  # fmt: skip
    assert "logprobs" not in json.loads(render("json")[1])


def test_verbose_json() -> None:
    body = render("verbose_json", TranscriptionOptions(segment_timestamps=True, word_timestamps=True))[1]
    parsed = TranscriptionVerbose.model_validate_json(body, strict=True)
    assert (parsed.language, parsed.duration) == ("de", 1.5)
    assert parsed.segments is not None
    assert parsed.words is not None
    assert parsed.segments[0].text == " Küche an."
    assert [word.word for word in parsed.words] == ["Küche", "an."]
    assert set(parsed.model_extra or {}) == {"task"}
    assert not {"segments", "words"} & set(json.loads(render("verbose_json")[1]))
    TranslationVerbose.model_validate_json(body, strict=True)


def test_text_and_subtitles() -> None:
    assert render("text") == ("text/plain; charset=utf-8", "Küche an.\n")
    assert "00:00:00,000 --> 00:00:01,500\nKüche an." in render("srt")[1]
    assert render("vtt")[1].startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n")


def data(frame: bytes) -> bytes:
    assert frame.startswith(b"data: ")
    assert frame.endswith(b"\n\n")
    assert b"\n" not in frame[6:-2]
    return frame[6:-2]


def test_server_sent_events() -> None:
    delta = TranscriptionTextDeltaEvent.model_validate_json(data(rest.delta_event("a\nb")), strict=True)
    assert delta.delta == "a\nb"
    request = TranscriptionRequest(model=None, options=TranscriptionOptions(logprobs=True), stream=True)
    done = TranscriptionTextDoneEvent.model_validate_json(
        data(rest.done_event(TRANSCRIPT, request)), strict=True
    )
    assert done.text == TRANSCRIPT.text
    assert done.usage is not None
    assert not done.model_extra
    failure = json.loads(data(rest.error_event(OverloadedError("busy"))))
    assert failure["error"]["code"] == "overloaded"
    assert rest.DONE == b"data: [DONE]\n\n"


def test_errors_and_models() -> None:
    body = rest.error_body(NotFoundError("no such model", param="model", code="model_not_found"))
    assert json.loads(body) == {
        "error": {
            "message": "no such model",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    listed = json.loads(rest.models_body([ModelCard("small", 7, ("transcribe",), ("de", "en"))]))
    assert (listed["data"][0]["abilities"], listed["data"][0]["languages"]) == (["transcribe"], ["de", "en"])
    assert listed["object"] == "list"
    assert Model.model_validate(listed["data"][0], strict=True).id == "small"
