"""Transcription bodies and errors, in OpenAI's shapes."""

from __future__ import annotations

import json

import msgspec
from openai.types import Model
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
    TranslationVerbose,
)
from sensorium.protocols.errors import NotFoundError, OverloadedError
from sensorium.protocols.server.models import ModelCard, models_body
from sensorium.protocols.shared.event_stream import DONE, error_body, error_event
from sensorium.protocols.transcription import rest
from sensorium.protocols.transcription.form import TranscriptionRequest
from sensorium.protocols.transcription.options import ResponseFormat
from sensorium.protocols.transcription.transcript import (
    Segment,
    TimedSegment,
    TokenLogProb,
    Transcript,
    TranscriptionOptions,
    Word,
)

TRANSCRIPT = Transcript(
    text="Küche an.",
    language="de",
    duration=1.5,
    segments=(Segment(0, 0, 0.0, 1.5, " Küche an.", (1, 2), 0.0, -0.2, 1.1, 0.01),),
    words=(Word("Küche", 0.0, 0.7), Word("an.", 0.8, 1.4)),
    num_input_tokens=75,
    num_output_tokens=4,
    tokens=(TokenLogProb("Küche", "Küche".encode(), -0.25),),
    num_audio_tokens=70,
)


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
        "type": "tokens", "input_tokens": 75, "output_tokens": 4, "total_tokens": 79,
        "input_token_details": {"audio_tokens": 70, "text_tokens": 5},
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
    assert set(parsed.model_extra or {}) == {"task", "languages", "language_probability"}
    assert json.loads(body)["languages"] == [{"code": "de"}]
    assert not {"segments", "words"} & set(json.loads(render("verbose_json")[1]))
    TranslationVerbose.model_validate_json(body, strict=True)


def test_text_and_subtitles() -> None:
    assert render("text") == ("text/plain; charset=utf-8", "Küche an.\n")
    assert "00:00:00,000 --> 00:00:01,500\nKüche an." in render("srt")[1]
    assert render("tsv") == (
        "text/tab-separated-values; charset=utf-8",
        "start\tend\ttext\n0\t1500\tKüche an.\n",
    )
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
    timed = TranscriptionRequest(model=None, options=TranscriptionOptions(), response_format="verbose_json")
    more = json.loads(data(rest.done_event(TRANSCRIPT, timed)))
    whole = json.loads(render("verbose_json")[1])
    for name in ("text", "language", "language_probability", "duration", "languages"):
        assert more[name] == whole[name]
    said = TRANSCRIPT.segments[0]
    segment = TimedSegment(**msgspec.structs.asdict(said) | {"words": TRANSCRIPT.words})
    told = json.loads(data(rest.segment_event(segment)))
    assert told.pop("type") == "transcript.text.segment"
    assert told.pop("words") == list(msgspec.to_builtins(TRANSCRIPT.words))
    assert (told.pop("id"), told.pop("speaker")) == ("0", "")
    assert told == {
        name: value for name, value in json.loads(msgspec.json.encode(said)).items() if name != "id"
    }
    wordless = json.loads(data(rest.segment_event(msgspec.structs.replace(segment, words=()))))
    assert "words" not in wordless
    failure = json.loads(data(error_event(OverloadedError("busy"))))
    assert failure["error"]["code"] == "overloaded"
    assert DONE == b"data: [DONE]\n\n"


def test_errors_and_models() -> None:
    body = error_body(NotFoundError("no such model", param="model", code="model_not_found"))
    assert json.loads(body) == {
        "error": {
            "message": "no such model",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    listed = json.loads(models_body([ModelCard("small", 7, ("transcribe",), ("audio",), ("de", "en"))]))
    assert (listed["data"][0]["abilities"], listed["data"][0]["languages"]) == (["transcribe"], ["de", "en"])
    assert listed["object"] == "list"
    assert Model.model_validate(listed["data"][0], strict=True).id == "small"
