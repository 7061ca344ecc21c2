"""Streams of providers that are shaped otherwise are read as others are; what is not read is named, once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sensorium.protocols.calls.frames import CallFrame, Media, decode_call_frame
from sensorium.protocols.calls.provider_shapes import READ_STREAMS
from sensorium.protocols.errors import BadRequestError, ClientError
from sensorium.realtime.calls.call import CallMachine
from sensorium.realtime.calls.effects import AppendTrackAudio, Begin, CallEffect, Hang, OpenTrack, SendEvent

BANDWIDTH = {
    "eventType": "start",
    "metadata": {
        "accountId": "1",
        "callId": "c-1",
        "streamId": "s-1",
        "tracks": [
            {"name": "inbound", "mediaFormat": {"encoding": "PCMU", "sampleRate": 8000}},
            {"name": "outbound", "mediaFormat": {"encoding": "PCMU", "sampleRate": 8000}},
        ],
    },
    "streamParams": {"language": "en"},
}
JAMBONZ = {
    "callSid": "j-1",
    "direction": "inbound",
    "from": "+1555",
    "sampleRate": 16000,
    "mixType": "mono",
    "metadata": {"language": "de", "depth": 1},
}
ASTERISK = {
    "event": "MEDIA_START",
    "connection_id": "media_connection1",
    "channel_id": "1761245643.1",
    "format": "slin16",
    "optimal_frame_size": 640,
    "channel_variables": {"language": "it"},
}


def run(*frames: dict[str, Any] | str | bytes) -> list[CallEffect]:
    machine = CallMachine("call_1", now=0.0)
    effects: list[CallEffect] = []
    for frame in frames:
        read: CallFrame | bytes | ClientError
        if isinstance(frame, bytes):
            read = frame
        else:
            try:
                read = decode_call_frame(frame if isinstance(frame, str) else json.dumps(frame))
            except ClientError as error:
                read = error
        effects += machine.receive(read, now=0.0)
        if effects and isinstance(effects[-1], Begin):
            effects += machine.agreed()
    return effects


def opened(effects: list[CallEffect]) -> list[tuple[str, str, int]]:
    found = [each for each in effects if isinstance(each, OpenTrack)]
    return [(each.track, each.format.encoding, each.format.rate) for each in found]


def appended(effects: list[CallEffect]) -> list[tuple[str, bytes]]:
    return [(each.track, each.audio) for each in effects if isinstance(each, AppendTrackAudio)]


def events_of(effects: list[CallEffect], kind: str) -> list[Any]:
    return [each.event for each in effects if isinstance(each, SendEvent) and each.event.event == kind]


def test_bandwidth() -> None:
    media = {"eventType": "media", "track": "outbound", "payload": "AAAA"}
    effects = run(BANDWIDTH, media, {"eventType": "stop", "metadata": {"callId": "c-1"}})
    assert opened(effects) == [("inbound", "pcmu", 8_000), ("outbound", "pcmu", 8_000)]
    assert appended(effects) == [("outbound", bytes(3))]
    (started,) = events_of(effects, "call.started")
    assert (started.call, started.parameters) == ("c-1", {"language": "en"})
    assert not events_of(effects, "error")


def test_jambonz() -> None:
    effects = run(JAMBONZ, b"abcd", {"event": "dtmf", "dtmf": "2", "duration": "1600"})
    assert opened(effects) == [("inbound", "pcm16", 16_000)]
    assert appended(effects) == [("inbound", b"abcd")]
    (started,) = events_of(effects, "call.started")
    assert started.call == "j-1"
    assert started.parameters["language"] == "de"
    assert [each.digit for each in events_of(effects, "dtmf")] == ["2"]
    assert not events_of(effects, "error")


def test_both_sides_of_jambonz_are_tracks() -> None:
    effects = run(JAMBONZ | {"mixType": "stereo", "sampleRate": "8000"}, b"LlRrLlRr", b"odd")
    assert opened(effects) == [("inbound", "pcm16", 8_000), ("outbound", "pcm16", 8_000)]
    assert appended(effects) == [("inbound", b"LlLl"), ("outbound", b"RrRr")]
    assert [each.code for each in events_of(effects, "error")] == ["invalid_frame"]


@pytest.mark.parametrize(
    ("first", "encoding", "rate"),
    [
        (ASTERISK, "pcm16", 16_000),
        (ASTERISK | {"format": "ulaw"}, "pcmu", 8_000),
        (
            "MEDIA_START connection_id:a channel:WebSocket/a/0x1 format:alaw optimal_frame_size:160",
            "pcma",
            8_000,
        ),
        ("MEDIA_START connection_id:a channel:WebSocket/a/0x1 format:slin", "pcm16", 8_000),
    ],
)
def test_asterisk(first: dict[str, Any] | str, encoding: str, rate: int) -> None:
    effects = run(
        first, b"abcd", {"event": "DTMF_END", "digit": "5"}, "DTMF_END digit:6 channel:a", "MEDIA_XON"
    )
    assert opened(effects) == [("inbound", encoding, rate)]
    assert appended(effects) == [("inbound", b"abcd")]
    assert [each.digit for each in events_of(effects, "dtmf")] == ["5", "6"]
    assert not events_of(effects, "error")


@pytest.mark.parametrize(
    ("frame", "param"),
    [
        (ASTERISK | {"format": "opus"}, "format"),
        (BANDWIDTH | {"eventType": 3}, "eventType"),
        (JAMBONZ | {"sampleRate": 11_025}, None),
        ({"eventType": "media", "payload": "%%%"}, "media.payload"),
    ],
)
def test_what_is_wrong_with_one_is_named(frame: dict[str, Any], param: str | None) -> None:
    effects = run(frame)
    (error,) = events_of(effects, "error")
    assert param in (None, error.param)


@pytest.mark.parametrize(
    "frames",
    [
        [{"version": "2", "type": "open", "seq": 1, "parameters": {"media": []}}],
        [{"kind": "AudioMetadata", "audioMetadata": {"encoding": "PCM"}}],
        [{"type": "session.initiate", "conversationId": "a"}],
        [{}],
        [bytes(320)],
        [{"event": "audio", "data": "AAAA"}],
    ],
)
def test_a_stream_that_is_not_read_gets_one_error_and_the_end(frames: list[Any]) -> None:
    effects = run(*frames * 50)
    (error,) = events_of(effects, "error")
    assert READ_STREAMS in error.message
    (summary,) = events_of(effects, "call.summary")
    assert summary.reason == "unknown_stream"
    assert isinstance(effects[-1], Hang)


@pytest.mark.parametrize("event", ["[]", "{}", "null", "1", '["MEDIA_START"]'])
def test_an_event_that_is_no_text_is_named(event: str) -> None:
    with pytest.raises(BadRequestError) as raised:
        decode_call_frame(f'{{"event": {event}}}')
    assert raised.value.param == "event"


def test_no_provider_can_say_that_its_frames_are_interleaved() -> None:
    frame = decode_call_frame('{"event": "start", "start": {}, "is_interleaved": true}')
    assert not frame.is_interleaved
    assert decode_call_frame('{"event": "media", "media": {"payload": "AAAA"}}').media == Media(bytes(3))
    with pytest.raises(BadRequestError):
        decode_call_frame("RINGING a:b")
