"""What the client remembers: numbers, what to send again, and when resuming makes no sense."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.client.realtime.events import Delta, Event, Resumed, SessionCreated
from sensorium.client.realtime.resume import ResumeRefusedError, Resumption, is_lost, waits
from sensorium.client.realtime.transcription_machine import SessionCore
from sensorium.protocols.realtime.codec import encode_event
from sensorium.protocols.realtime.events import (
    Error,
    ErrorDetail,
    InputAudioBufferSpeechStarted,
    SessionUpdated,
)
from sensorium.protocols.realtime.session import SessionView
from support.fake_server import SESSION
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.frames import Close
from websockets.http11 import Response

VIEW = msgspec.convert(
    SESSION
    | {
        "id": "sess_1",
        "capabilities": ["session.resume"],
        "resume_token": "secret",
        "limits": SESSION["limits"] | {"resume_grace_s": 20.0},
    },
    SessionView,
)


def created(**changes: object) -> SessionCreated:
    return SessionCreated(session=msgspec.structs.replace(VIEW, **changes), server_event_seq=1)


def resumed(received_events: int) -> Event:
    return Resumed(
        session=VIEW, after_seq=0, last_seq=0, received_events=received_events, received_audio_bytes=0
    )


def delta(seq: int) -> Delta:
    return Delta(item_id="item", delta="word", server_event_seq=seq)


def test_the_wish_names_session_token_and_the_newest_event() -> None:
    memory = Resumption()
    assert memory.arrived(created())
    assert memory.arrived(delta(2))
    assert not memory.arrived(delta(2)), "it was there before"
    assert json.loads(memory.resume_frame()) == {
        "type": "session.resume",
        "session_id": "sess_1",
        "token": "secret",
        "after_seq": 2,
    }


@given(st.lists(st.binary(max_size=5)), st.data())
def test_what_the_server_has_not_taken_is_sent_again(frames: list[bytes], data: st.DataObject) -> None:
    memory = Resumption()
    memory.arrived(created())
    for frame in frames:
        memory.sent(frame)
    for _ in range(2):
        taken = data.draw(st.integers(0, len(frames)))
        assert memory.answer(resumed(taken)) == frames[taken:]


def test_what_is_kept_is_bounded_and_what_is_missing_is_named() -> None:
    memory = Resumption(max_bytes=100)
    memory.arrived(created())
    for _ in range(30):
        memory.sent(bytes(10))
    assert memory.num_bytes == 100
    assert memory.answer(resumed(20)) == [bytes(10)] * 10
    with pytest.raises(ResumeRefusedError) as refused:
        memory.answer(resumed(19))
    assert refused.value.is_final


@pytest.mark.parametrize(("code", "is_final"), [("resume_gap", True), ("too_many_sessions", False)])
def test_refusals_that_time_does_not_change_are_final(code: str, is_final: bool) -> None:
    memory = Resumption()
    memory.arrived(created())
    assert memory.answer(created()) is None, "the greeting of a session that is not ours"
    with pytest.raises(ResumeRefusedError, match="no") as refused:
        memory.answer(Error(error=ErrorDetail(code=code, message="no")))
    assert refused.value.is_final == is_final


def test_a_frame_that_breaks_every_connection_is_not_sent_for_ever() -> None:
    memory = Resumption()
    memory.arrived(created())
    for _ in range(20):
        assert memory.answer(resumed(0)) == [], "an idle connection may break as often as it likes"
    memory.sent(b"the frame")
    for seq in range(2, 5):
        for _ in range(4):
            assert memory.answer(resumed(0)) == [b"the frame"]
        memory.arrived(delta(seq))
    for _ in range(5):
        assert memory.answer(resumed(0)) == [b"the frame"], "there was progress"
    with pytest.raises(ResumeRefusedError, match="again and again") as refused:
        memory.answer(resumed(0))
    assert refused.value.is_final


@pytest.mark.parametrize("changes", [{"resume_token": msgspec.UNSET}, {"resume_token": ""}])
def test_servers_that_do_not_resume_cost_no_memory(changes: dict[str, object]) -> None:
    memory = Resumption()
    memory.arrived(created(**changes))
    memory.sent(bytes(10))
    assert memory.num_bytes == memory.grace_s == 0


def test_it_can_be_switched_off() -> None:
    core = SessionCore(resume=False)
    core.receive(encode_event(created()))
    assert core.resumption.grace_s == 0


def test_the_core_shows_no_event_twice() -> None:
    core = SessionCore()
    for event in (created(), SessionUpdated(session=VIEW, server_event_seq=2)):
        core.receive(encode_event(event))
    speech = InputAudioBufferSpeechStarted(item_id="item", audio_start_ms=0, server_event_seq=3)
    assert len(core.receive(encode_event(speech))) == 1
    assert core.receive(encode_event(speech)) == []
    assert core.resumption.grace_s == 20.0


def test_a_connection_is_lost_unless_the_server_closed_it() -> None:
    assert is_lost(ConnectionClosedError(None, None))
    assert is_lost(ConnectionClosedError(None, Close(1011, "keepalive ping timeout")))
    assert is_lost(ConnectionClosedError(Close(1001, "a proxy"), None))
    assert not is_lost(ConnectionClosedError(Close(1008, "session_idle"), None))
    # What we could not read would come again.
    assert not is_lost(ConnectionClosedError(None, Close(1009, "frame too large")))
    assert not is_lost(ConnectionClosedError(Close(1012, "server_draining"), None))


def test_attempts_begin_at_once_grow_apart_and_end_within_the_grace() -> None:
    for _ in range(20):
        found = list(waits(30.0))
        assert found[0] == 0.0
        assert sum(found) <= 30.0
        assert 8 <= len(found) <= 20
        assert found[-1] > 2 * found[1]


@pytest.mark.parametrize(("status", "is_final"), [(401, True), (403, True), (429, False), (503, False)])
def test_attempts_go_on_until_the_server_refuses_for_good(status: int, is_final: bool) -> None:
    memory = Resumption()
    memory.arrived(created())
    body = b'{"error": {"message": "what it says"}}'
    until, tries = memory.attempts(100.0)
    num_tries = 0
    for _ in tries:
        memory.failed(InvalidStatus(Response(status, "", Headers(), body)))
        num_tries += 1
    assert until == 120.0
    assert num_tries == 1 if is_final else num_tries > 5
    assert "what it says" in str(memory.not_resumed)
    assert memory.attempts(110.0)[0] == 120.0, "it was lost then, not now"
    memory.succeeded()
    assert memory.attempts(110.0)[0] == 130.0
    assert memory.not_resumed == "nobody answered in time"
