"""A call as a pure machine: order, gaps, ends, whatever a provider sends."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.protocols.calls.frames import CallEvent, decode_call_frame, encode_call_event
from sensorium.protocols.errors import (
    BadRequestError,
    ClientError,
    OverloadedError,
    SensoriumError,
    UnauthorizedError,
)
from sensorium.protocols.realtime.events import (
    ConversationItemInputAudioTranscriptionCompleted,
    Error,
    ErrorDetail,
    InputAudioBufferCommitted,
    InputAudioBufferFlushed,
    InputAudioBufferSpeechStarted,
)
from sensorium.protocols.transcription.view import DurationUsage
from sensorium.realtime.calls.call import DRAINING, FINISH_S, MAX_ERRORS, START_S, CallMachine
from sensorium.realtime.calls.effects import (
    AppendTrackAudio,
    Begin,
    CallEffect,
    EndTrack,
    Hang,
    OpenTrack,
    SendEvent,
)
from sensorium.realtime.calls.track import MAX_TRANSCRIPT_CHARS

Frame = dict[str, Any]
START: Frame = {"event": "start", "start": {"callSid": "CA1", "tracks": ["inbound", "outbound"]}}
STOP: Frame = {"event": "stop"}
NUMBERED: dict[str, Any] = {"event_id": "e", "server_event_seq": 1}


class Call:
    """A script of frames and what they led to."""

    def __init__(self, *frames: Frame | bytes, is_known: bool = True, may_be: bool = True) -> None:
        """`may_be`: what is asked by `Begin` is agreed on at once."""
        self.machine = CallMachine("call_1", now=0.0, is_known=is_known)
        self.may_be = may_be
        self.effects: list[CallEffect] = []
        self.now = 0.0
        self.send(*frames)

    def send(self, *frames: Frame | bytes) -> Sequence[CallEffect]:
        before = len(self.effects)
        for frame in frames:
            read: Any = frame
            if isinstance(frame, dict):
                try:
                    read = decode_call_frame(json.dumps(frame))
                except ClientError as error:
                    read = error
            self.effects += self.machine.receive(read, now=self.now)
            if self.may_be and self.effects and isinstance(self.effects[-1], Begin):
                self.effects += self.machine.agreed()
        return self.effects[before:]

    def session_sends(self, track: str, *events: Any) -> None:  # noqa: ANN401 (any server event)
        for event in events:
            self.effects += self.machine.session_event(track, event, now=self.now)

    def events(self, kind: str) -> list[CallEvent]:
        return [e.event for e in self.effects if isinstance(e, SendEvent) and e.event.event == kind]

    def finish(self, *tracks: str) -> None:
        for track in tracks or ("inbound", "outbound"):
            self.session_sends(track, InputAudioBufferFlushed(**NUMBERED, item_id=None))


def media(track: str = "inbound", chunk: int | None = None, payload: str = "AAAA") -> Frame:
    found: Frame = {"track": track, "payload": payload}
    return {"event": "media", "media": found if chunk is None else found | {"chunk": str(chunk)}}


def completed(item: str, text: str) -> list[Any]:
    return [
        InputAudioBufferCommitted(**NUMBERED, item_id=item, previous_item_id=None),
        ConversationItemInputAudioTranscriptionCompleted(
            **NUMBERED, item_id=item, transcript=text, usage=DurationUsage(seconds=1.0)
        ),
    ]


def test_a_key_may_be_told_without_a_field_of_its_own() -> None:
    call = Call({"event": "websocket:connected", "content-type": "audio/l16;rate=8000", "start": None})
    call.send({"event": "websocket:dtmf", "digit": "5", "duration": 260}, {"event": "websocket:notify"})
    assert [event.digit for event in call.events("dtmf")] == ["5"]
    assert not call.events("error")


def test_a_call_from_start_to_summary() -> None:
    call = Call({"event": "connected"}, START, media(chunk=1), media(chunk=4), media("outbound_track", 1))
    opened = [e.track for e in call.effects if isinstance(e, OpenTrack)]
    appended = [(e.track, e.audio) for e in call.effects if isinstance(e, AppendTrackAudio)]
    assert opened == ["inbound", "outbound"]
    assert appended == [("inbound", bytes(3)), ("inbound", bytes(3)), ("outbound", bytes(3))]
    call.session_sends("inbound", InputAudioBufferSpeechStarted(**NUMBERED, item_id="i", audio_start_ms=40))
    call.session_sends("inbound", *completed("i", "Good morning."))
    assert call.events("transcript.completed")[0].at_ms == 40
    call.now = 3.0
    assert call.send(STOP) == [EndTrack("inbound"), EndTrack("outbound")]
    assert not call.machine.is_over
    call.finish()
    (summary,) = call.events("call.summary")
    assert (summary.call, summary.duration_s, summary.reason) == ("CA1", 3.0, "stop")
    assert summary.tracks is not None
    first = summary.tracks[0]
    assert (first.transcript, first.num_frames, first.num_missing, first.num_turns) == (
        "Good morning.",
        2,
        2,
        1,
    )
    assert isinstance(call.effects[-1], Hang)
    assert not call.send(media())


def test_a_summary_has_the_words_of_a_day_and_the_rest_was_told_as_it_came() -> None:
    call = Call(START)
    for number in range(5):
        call.session_sends("inbound", *completed(f"item {number}", "word " * (MAX_TRANSCRIPT_CHARS // 20)))
    call.send(STOP)
    call.finish()
    first = (call.events("call.summary")[0].tracks or [])[0]
    assert (len(first.transcript), first.num_turns) == (MAX_TRANSCRIPT_CHARS + 3, 5), "four lines"
    assert len(call.events("transcript.completed")) == 5


def test_what_start_says_of_the_call_is_given_back_but_for_the_key() -> None:
    start = {"customParameters": {"name": "Ada", "model": "m", "key": "sk-1"}}
    call = Call({"event": "start", "start": start}, is_known=False)
    assert [e.parameters for e in call.effects if isinstance(e, Begin)] == [start["customParameters"]]
    (started,) = call.events("call.started")
    assert started.parameters == {"name": "Ada", "model": "m"}
    call.send({"event": "hold"}, {"event": "mark", "mark": {"name": "here"}})
    assert (len(call.events("error")), len(call.events("mark"))) == (1, 1)
    assert not call.machine.is_over


@pytest.mark.parametrize(
    ("error", "code"), [(UnauthorizedError("no"), 1008), (OverloadedError("full"), 1013)]
)
def test_a_call_that_may_not_be_says_why_and_is_over(error: SensoriumError, code: int) -> None:
    call = Call(START, may_be=False)
    assert not call.events("call.started")
    error_event, hang = call.machine.refuse(error)
    assert isinstance(error_event, SendEvent)
    assert (error_event.event.seq, error_event.event.code) == (1, error.code)
    assert hang == Hang(code, error.message)
    assert not call.send(media(), STOP)
    assert call.machine.deadline == math.inf


@pytest.mark.parametrize(
    "frame",
    [{"event": "mark", "mark": {"name": "x"}}, media(), {"event": "hold"}, {"event": 1}, b"audio"],
)
def test_a_stranger_that_begins_with_something_else_is_sent_away(frame: Frame | bytes) -> None:
    call = Call({"event": "connected"}, frame, frame, START, is_known=False)
    (error,) = call.events("error")
    assert call.effects[1:] == [Hang(1008, error.message or "")]


def test_the_summary_waits_for_what_was_committed_last() -> None:
    call = Call(START, STOP)
    call.finish("outbound")
    commit, answer = completed("i", "Bye.")
    call.session_sends("inbound", commit, InputAudioBufferFlushed(**NUMBERED, item_id="i"))
    assert not call.machine.is_over
    call.session_sends("inbound", answer)
    assert call.machine.is_over


@pytest.mark.parametrize(
    ("media_format", "rate"),
    [
        ({"encoding": "audio/x-mulaw", "sampleRate": 8000}, 8_000),
        ({"encoding": "PCMU", "sample_rate": 8000, "channels": 1}, 8_000),
        ({"encoding": "PCMA"}, 8_000),
        ({"encoding": "audio/l16", "sample_rate": 16000}, 16_000),
    ],
)
@pytest.mark.parametrize("name", ["mediaFormat", "media_format"])
def test_formats_as_providers_write_them(name: str, media_format: Frame, rate: int) -> None:
    call = Call({"event": "start", "start": {name: media_format}})
    (opened,) = [e for e in call.effects if isinstance(e, OpenTrack)]
    assert (opened.track, opened.format.rate) == ("inbound", rate)


def test_binary_audio_belongs_to_the_first_track() -> None:
    call = Call({"event": "websocket:connected", "content-type": "audio/l16;rate=8000"}, b"abcd")
    assert [e.audio for e in call.effects if isinstance(e, AppendTrackAudio)] == [b"abcd"]


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        (media(), "unexpected_event", "event"),
        (b"audio", "unexpected_event", "event"),
        ({"event": "start"}, "invalid_frame", "start"),
        ({"event": "start", "start": {"tracks": ["a"] * 5}}, "invalid_frame", "start.tracks"),
        (
            {"event": "start", "start": {"mediaFormat": {"encoding": "opus"}}},
            "unsupported_media_format",
            None,
        ),
        (
            {"event": "start", "start": {"mediaFormat": {"sampleRate": 16000}}},
            "unsupported_media_format",
            None,
        ),
        ({"event": "start", "start": {"mediaFormat": {"channels": 2}}}, "unsupported_media_format", None),
        ({"event": "x", "content-type": "audio/l16;rate=many"}, "invalid_value", "content-type"),
        ({"event": 3}, "invalid_frame", "event"),
    ],
)
def test_refused_before_the_start(frame: Frame | bytes, code: str, param: str | None) -> None:
    call = Call(frame)
    (error,) = call.events("error")
    assert error.code == code
    assert param in (None, error.param)
    assert call.send(START), "the call can begin all the same"


def test_too_many_errors_end_the_call() -> None:
    call = Call(START, *[{"event": "hold"} for _ in range(MAX_ERRORS + 1)])
    call.finish()
    assert call.events("call.summary")[0].reason == "too_many_errors"


def test_a_track_that_ends_by_itself_leaves_the_others() -> None:
    call = Call(START)
    call.effects += call.machine.gone("inbound", "too_many_sessions", "no room", now=1.0)
    assert call.events("error")[0].track == "inbound"
    assert not [e for e in call.send(media()) if isinstance(e, AppendTrackAudio)]
    assert [e for e in call.send(media("outbound")) if isinstance(e, AppendTrackAudio)]
    call.effects += call.machine.gone("outbound", "too_many_sessions", "no room", now=1.0)
    assert call.machine.is_over
    assert call.events("call.summary")[0].reason == "too_many_sessions"


def test_a_server_that_stops_lets_the_tracks_finish() -> None:
    call = Call(START)
    assert not call.machine.drain(now=1.0)
    problem = Error(error=ErrorDetail(type="server_error", code=DRAINING, message="restarting"), **NUMBERED)
    call.session_sends("outbound", problem)
    for track in ("outbound", "inbound"):
        assert not call.machine.is_over
        call.effects += call.machine.gone(track, DRAINING, "restarting", now=2.0)
    assert not call.events("error")
    assert call.events("call.summary")[0].reason == DRAINING
    assert not call.machine.problem("callback_failed", "behind the end"), "the summary is the last"
    unbegun = Call()
    unbegun.effects += unbegun.machine.drain(now=1.0)
    assert unbegun.machine.is_over


def test_limits_of_time() -> None:
    call = Call()
    assert call.machine.deadline == START_S
    assert not call.machine.on_deadline(now=START_S - 1)
    call.effects += call.machine.on_deadline(now=START_S)
    assert call.events("error")[0].code == "call_not_started"
    slow = Call(START, STOP)
    assert slow.machine.deadline == FINISH_S
    slow.effects += slow.machine.on_deadline(now=FINISH_S)
    assert slow.machine.is_over
    assert slow.machine.deadline == math.inf


FRAMES = st.one_of(
    st.just(START),
    st.just(STOP),
    st.builds(media, st.sampled_from(["inbound", "outbound", "other"]), st.none() | st.integers(-3, 10**9)),
    st.fixed_dictionaries({"event": st.sampled_from(["mark", "dtmf", "connected", "media", "start", "?"])}),
    st.just({"event": "dtmf", "dtmf": {"digit": "5"}}),
    st.just({"event": "mark", "mark": {"name": "m"}}),
    st.binary(max_size=9),
)


@given(st.lists(FRAMES, max_size=25))
@settings(max_examples=60, deadline=None)
def test_every_call_ends_with_one_summary_and_numbered_events(frames: list[Frame | bytes]) -> None:
    call = Call(*frames)
    call.effects += call.machine.end("disconnected", now=1.0)
    call.finish()
    events = [e.event for e in call.effects if isinstance(e, SendEvent)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.event for event in events].count("call.summary") == 1
    assert events[-1].event == "call.summary"
    assert sum(isinstance(e, Hang) for e in call.effects) == 1
    assert all(encode_call_event(event) for event in events)


@given(st.text(max_size=200))
@settings(max_examples=20, deadline=None)
def test_text_that_is_no_frame_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError):
        decode_call_frame(text)
