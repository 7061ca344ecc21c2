"""Frames to events: every valid one decoded, everything else answered with code, message and param."""

from __future__ import annotations

import base64
import json
import tracemalloc
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.realtime import (
    RealtimeClientEvent,
    RealtimeResponseCreateParams,
    RealtimeSessionCreateRequest,
    RealtimeTranslationClientEvent,
)
from sensorium.protocols.realtime.codec import (
    ClientDecoder,
    OtherServerEvent,
    decode_client_event,
    decode_server_event,
    encode_event,
)
from sensorium.protocols.realtime.conversation_session import DialoguePatch
from sensorium.protocols.realtime.events import (
    ClientEvent,
    Error,
    ErrorDetail,
    InputAudioBufferAppend,
    InputAudioBufferClear,
    InputAudioBufferCommit,
    InputAudioBufferFlush,
    InvalidEvent,
    SessionUpdate,
)
from sensorium.protocols.realtime.responses import ResponseOptions
from sensorium.protocols.realtime.session import (
    AudioPatch,
    InputPatch,
    ServerVadPatch,
    SessionPatch,
    TranscriptionPatch,
)
from sensorium.protocols.realtime.vllm_events import FlatCommit, FlatInvalid, FlatUpdate


def update(audio_input: dict[str, Any]) -> dict[str, Any]:
    session = {"type": "transcription", "audio": {"input": audio_input}}
    return {"type": "session.update", "event_id": "e", "session": session}


def refused(frame: object) -> InvalidEvent:
    text = frame if isinstance(frame, str | bytes) else json.dumps(frame)
    event = decode_client_event(text)
    assert isinstance(event, InvalidEvent)
    assert event.message
    assert len(event.message) < 400
    return event


def test_the_served_events() -> None:
    assert decode_client_event(b'{"audio":"AAECAw==","type":"input_audio_buffer.append"}') == (
        InputAudioBufferAppend(b"\0\1\2\3")
    )
    assert decode_client_event('{"type":"input_audio_buffer.commit","event_id":"e"}') == (
        InputAudioBufferCommit(event_id="e")
    )
    assert decode_client_event('{"type":"input_audio_buffer.clear"}') == InputAudioBufferClear()
    event = decode_client_event(
        json.dumps(update({"turn_detection": None, "transcription": {"language": "en"}}))
    )
    assert event == SessionUpdate(
        SessionPatch(
            "transcription",
            AudioPatch(InputPatch(transcription=TranscriptionPatch(language="en"), turn_detection=None)),
        ),
        event_id="e",
    )


@pytest.mark.parametrize("name", ["input_audio_buffer.commit", "session.update", "no.such.event"])
def test_an_event_id_too_long_to_echo_is_refused(name: str) -> None:
    invalid = decode_client_event(json.dumps({"type": name, "event_id": "x" * 513, "session": {}}))
    assert isinstance(invalid, InvalidEvent)
    assert invalid.param == ("type" if name == "no.such.event" else "event_id")
    assert invalid.event_id is None
    accepted = decode_client_event(json.dumps({"type": name, "event_id": "x" * 512, "session": {}}))
    assert accepted.event_id == "x" * 512


@pytest.mark.parametrize(
    "event",
    [
        InputAudioBufferAppend(b"\xff\0", event_id="x"),
        InputAudioBufferCommit(),
        InputAudioBufferClear(event_id=None),
        InputAudioBufferFlush(event_id="f"),
        SessionUpdate(SessionPatch()),
        SessionUpdate(
            SessionPatch(
                "transcription",
                AudioPatch(InputPatch(turn_detection=ServerVadPatch(threshold=0.25), noise_reduction=None)),
            )
        ),
    ],
)
def test_what_we_encode_we_decode(event: ClientEvent) -> None:
    assert decode_client_event(encode_event(event)) == event


def known_client_types() -> set[str]:
    names: set[str] = set()
    for union in (RealtimeClientEvent, RealtimeTranslationClientEvent):
        for event in typing.get_args(typing.get_args(union)[0]):
            names.update(typing.get_args(event.model_fields["type"].annotation))
    return names


@pytest.mark.parametrize("name", sorted(known_client_types()))
def test_every_event_the_openai_package_builds_is_known_by_name(name: str) -> None:
    event = decode_client_event(json.dumps({"type": name, "event_id": "e"}))
    if isinstance(event, InvalidEvent):
        assert event.code in ("unsupported_event", "missing_required_parameter")
        assert event.event_id == "e"
        assert name in event.message or event.param in ("audio", "session")


def test_a_name_of_the_beta_is_told_what_to_use() -> None:
    event = refused({"type": "transcription_session.update", "session": {}})
    assert event.code == "unsupported_event"
    assert "use session.update with `session.type` transcription" in event.message


@pytest.mark.parametrize(
    ("kind", "field", "known"),
    [("session.update", "session", DialoguePatch), ("response.create", "response", ResponseOptions)],
)
def test_null_may_be_said_of_every_field(kind: str, field: str, known: type[msgspec.Struct]) -> None:
    """Also of what OpenAI's package knows and is not served."""
    theirs = RealtimeSessionCreateRequest if field == "session" else RealtimeResponseCreateParams
    for name in {*known.__struct_fields__, *theirs.model_fields} - {"type"}:
        event = decode_client_event(json.dumps({"type": kind, field: {name: None}}), answers=True)
        assert not isinstance(event, InvalidEvent), event
    event = decode_client_event(json.dumps({"type": kind, field: {"prompt": {"id": "p"}}}), answers=True)
    assert isinstance(event, InvalidEvent)
    assert event.param == f"{field}.prompt"


@pytest.mark.parametrize("text", ["A", "AA", "AAA", "AA=", "AAA\n", "AA A", "AA-_", "AA==AA==", "é", "*"])
def test_bad_base64_names_audio(text: str) -> None:
    event = refused({"type": "input_audio_buffer.append", "audio": text, "event_id": "e7"})
    assert (event.code, event.param, event.event_id) == ("invalid_audio", "audio", "e7")


COMMIT, SESSION = '{"type":"input_audio_buffer.commit"', '{"type":"session.update"'


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        ("", "invalid_json", None),
        ("{", "invalid_json", None),
        (b"\xff\xfe", "invalid_json", None),
        ("\ud800", "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        (COMMIT + ',"x":' + "[" * 100_000, "invalid_json", None),
        (SESSION + ',"session":{"id":' + "[" * 400_000 + "]" * 400_000 + "}}", "invalid_json", None),
        ("[]", "invalid_event", None),
        ("null", "invalid_event", None),
        ({}, "missing_required_parameter", "type"),
        ({"type": None}, "missing_required_parameter", "type"),
        ({"type": 7}, "invalid_value", "type"),
        ({"type": "nonsense" * 100}, "unknown_event", "type"),
        ({"type": "input_audio_buffer.append"}, "missing_required_parameter", "audio"),
        ({"type": "input_audio_buffer.append", "audio": 1}, "invalid_audio", "audio"),
        ({"type": "input_audio_buffer.commit", "event_id": 1}, "invalid_value", "event_id"),
        ({"type": "session.update"}, "missing_required_parameter", "session"),
        ({"type": "session.update", "model": "flat"}, "missing_required_parameter", "session"),
        *(
            ({"type": name, **rest, "event_id": "e", "colour": 1}, "unknown_parameter", "colour")
            for name, rest in (
                ("session.update", {"session": {}}),
                ("input_audio_buffer.append", {"audio": "AAA="}),
                ("input_audio_buffer.commit", {}),
                ("input_audio_buffer.flush", {}),
                ("input_audio_buffer.clear", {}),
                ("session.resume", {"session_id": "s", "token": "t", "after_seq": 0}),
            )
        ),
        ({"type": "session.update", "session": {}, "temperature": 0}, "unknown_parameter", "temperature"),
    ],
)
def test_refused_frames(frame: object, code: str, param: str | None) -> None:
    event = refused(frame)
    assert (event.code, event.param) == (code, param)


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("session.update", {"session": {}}),
        ("input_audio_buffer.append", {"audio": "AAA="}),
        ("input_audio_buffer.commit", {}),
        (
            "conversation.item.create",
            {"item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}},
        ),
        ("conversation.item.retrieve", {"item_id": "i"}),
        ("conversation.item.delete", {"item_id": "i"}),
        ("conversation.item.truncate", {"item_id": "i", "content_index": 0, "audio_end_ms": 0}),
        ("response.create", {}),
        ("response.cancel", {}),
        ("input_image_buffer.append", {"image": "AAA="}),
        ("input_image_buffer.commit", {}),
        ("input_image_buffer.clear", {}),
    ],
)
def test_a_session_that_answers_knows_every_field_or_refuses_it(name: str, rest: dict[str, Any]) -> None:
    frame = {"type": name, "event_id": "e", **rest}
    assert not isinstance(decode_client_event(json.dumps(frame), answers=True), InvalidEvent)
    event = decode_client_event(json.dumps(frame | {"colour": [1]}), answers=True)
    assert isinstance(event, InvalidEvent)
    assert (event.code, event.param, event.event_id) == ("unknown_parameter", "colour", "e")


def test_final_belongs_to_the_other_dialect() -> None:
    """A client that has shown OpenAI's is told; `ClientDecoder` reads it where it is the first sign."""
    decoder, frame = ClientDecoder(), json.dumps({"type": "input_audio_buffer.commit", "final": True})
    assert isinstance(decoder.decode(json.dumps(update({}))), SessionUpdate)
    event = decoder.decode(frame)
    assert isinstance(event, InvalidEvent)
    assert (event.code, event.param) == ("unknown_parameter", "final")
    assert isinstance(ClientDecoder().decode(frame), FlatCommit)


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ([], "invalid_value", "session"),
        ({"type": "realtime", "tools": []}, "unsupported_session_type", "session.type"),
        ({"type": "x"}, "invalid_value", "session.type"),
        ({"voice": "x"}, "unknown_parameter", "session.voice"),
        ({"include": ["everything"]}, "invalid_value", "session.include[0]"),
    ],
)
def test_refused_sessions(session: object, code: str, param: str) -> None:
    event = refused({"type": "session.update", "session": session})
    assert (event.code, event.param) == (code, param)


@pytest.mark.parametrize(
    ("audio_input", "code", "param"),
    [
        (
            {"turn_detection": {"type": "server_vad", "threshold": 1.5}},
            "invalid_value",
            "turn_detection.threshold",
        ),
        ({"turn_detection": {"type": "x"}}, "invalid_value", "turn_detection.type"),
        ({"turn_detection": {"threshold": 0.5}}, "missing_required_parameter", "turn_detection.type"),
        ({"turn_detection": {"type": "server_vad", "x": 1}}, "unknown_parameter", "turn_detection.x"),
        ({"format": {"type": 3}}, "invalid_value", "format.type"),
        ({"transcription": {"prompt": 3}}, "invalid_value", "transcription.prompt"),
        ({"transcription": {"model": []}}, "invalid_value", "transcription.model"),
        ({"transcription": {"delay": "none"}}, "invalid_value", "transcription.delay"),
        ({"transcription": {"languages": ["en", 1]}}, "invalid_value", "transcription.languages[1]"),
        ({"transcription": {"keywords": "Kiel"}}, "invalid_value", "transcription.keywords"),
        ({"transcription": {"keyword_boost": 5.1}}, "invalid_value", "transcription.keyword_boost"),
        ({"transcription": {"keyword_boost": "2"}}, "invalid_value", "transcription.keyword_boost"),
    ],
)
def test_refused_settings(audio_input: dict[str, Any], code: str, param: str) -> None:
    event = refused(update(audio_input))
    assert (event.code, event.param, event.event_id) == (code, f"session.audio.input.{param}", "e")


@pytest.mark.parametrize(
    "frame",
    [
        '{"type":"nonsense","x":%s}',
        '{"type":%s}',
        '{"type":"input_audio_buffer.append","event_id":%s,"audio":"AA=="}',
        '{"type":"input_audio_buffer.commit","event_id":%s}',
        '{"type":"session.update","session":{"type":%s}}',
        '{"type":"session.update","session":{"limits":%s}}',
        '{"type":"session.update","session":{"voice":%s}}',
        "%s",
    ],
)
def test_a_frame_full_of_objects_is_not_built(frame: str) -> None:
    """Millions of small lists cost seconds of the loop and hundreds of megabytes."""
    text = frame % ("[" + "[]," * 300_000 + "[]]")
    tracemalloc.start()
    try:
        decode_client_event(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(text)


def test_a_top_level_model_beside_a_session_is_tolerated() -> None:
    assert isinstance(decode_client_event(json.dumps(update({}) | {"model": "m"})), SessionUpdate)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
types = st.sampled_from(["session.update", "input_audio_buffer.append", "input_audio_buffer.commit", "x"])
fields = st.sampled_from(
    ["session", "audio", "input", "format", "transcription", "turn_detection", "type", "model", "threshold"]
)
wrong_shapes = st.builds(
    lambda kind, rest: {"type": kind, **rest},
    types,
    st.dictionaries(
        fields, st.recursive(json_values, lambda i: st.dictionaries(fields, i, max_size=3)), max_size=4
    ),
)


@given(
    st.binary(max_size=60) | st.text(max_size=60) | json_values.map(json.dumps) | wrong_shapes.map(json.dumps)
)
def test_garbage_never_raises(frame: str | bytes) -> None:
    event = decode_client_event(frame)
    if isinstance(event, InvalidEvent):
        assert event.code
        assert event.message
        assert event.param is None or event.param


@given(st.binary(max_size=200))
def test_audio_comes_through(data: bytes) -> None:
    frame = {"type": "input_audio_buffer.append", "audio": base64.b64encode(data).decode()}
    assert decode_client_event(json.dumps(frame)) == InputAudioBufferAppend(data)


def test_server_frames_for_the_sdk() -> None:
    error = Error(event_id="e", server_event_seq=3, error=ErrorDetail(message="no", type="x"))
    assert decode_server_event(encode_event(error)) == error
    foreign = decode_server_event('{"type":"output_audio_buffer.started","response_id":"a"}')
    assert foreign == OtherServerEvent(
        "output_audio_buffer.started", {"type": "output_audio_buffer.started", "response_id": "a"}
    )
    for frame in ("", "[]", "{}", '{"type":1}', b"\xff"):
        with pytest.raises(ValueError, match="frame"):
            decode_server_event(frame)


def test_frames_tell_the_dialect() -> None:
    update = '{"type":"session.update","model":"m","event_id":"e"}'
    decoder = ClientDecoder()
    assert decoder.decode(update) == FlatUpdate("m", event_id="e")
    assert decoder.decode('{"type":"input_audio_buffer.commit"}') == FlatCommit(False)


@pytest.mark.parametrize(
    ("frame", "param"),
    [
        ('{"type":"session.update","model":"m","timestamp_granularities":["segment"]}', "timestamp_gran"),
        ('{"type":"session.update","model":"m","include":["x"]}', "include"),
        ('{"type":"input_audio_buffer.append","audio":"AAA=","x":1}', "x"),
    ],
)
def test_what_the_flat_dialect_does_not_know_is_refused(frame: str, param: str) -> None:
    decoder = ClientDecoder()
    decoder.decode('{"type":"session.update","model":"m"}')
    refused = decoder.decode(frame)
    assert isinstance(refused, FlatInvalid)
    assert refused.code == "invalid_event"
    assert f"`{param}" in refused.message
    assert isinstance(decoder.decode('{"type":"session.update","model":"m","include":[]}'), FlatUpdate)
    assert decoder.decode('{"type":"session.update","model":"m","temperature":0}') == FlatUpdate("m")


@pytest.mark.parametrize(
    ("frame", "is_flat"),
    [
        ('{"type":"session.update","model":"m"}', True),
        ('{"type":"session.update","model":"m","session":{}}', False),
        ('{"type":"session.update"}', None),
        ('{"type":"input_audio_buffer.commit","final":false}', True),
        ('{"type":"input_audio_buffer.commit"}', None),
        ('{"type":"input_audio_buffer.append","audio":""}', None),
        ("garbage", None),
    ],
)
def test_the_first_telling_frame_decides(frame: str, is_flat: bool | None) -> None:
    decoder = ClientDecoder()
    decoder.decode(frame)
    assert decoder.is_flat is is_flat
    decoder.decode('{"type":"session.update","session":{}}')
    assert decoder.is_flat is bool(is_flat)
