"""Updates, limits and the ends of a session."""

from __future__ import annotations

from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.shared.audio_format import AudioFormat
from sensorium.realtime.effects import (
    ConfigureAudio,
    ConfigureTranscription,
)
from sensorium.realtime.events import (
    AudioRefused,
    DrainStarted,
)
from support.dialogs import COMMITTED, Dialog


def test_without_detection_a_turn_takes_no_more_than_its_length() -> None:
    dialog = Dialog(detection=False, max_turn_s=2.0)
    dialog.silence(5000)
    assert dialog.session.admit(32_000) is None, "silence slides out instead"
    dialog.speak(500)
    while dialog.pending:
        dialog.answer("x")
    refused = dialog.session.admit(96_000, event_id="big")
    assert refused is not None
    dialog.perform(refused)
    error = dialog.of("error")[0]["error"]
    assert (error["code"], error["event_id"]) == ("input_audio_buffer_overflow", "big")
    dialog.commit()
    assert dialog.of("committed")[0]["audio_end_ms"] - dialog.of("committed")[0]["audio_start_ms"] <= 2500
    assert dialog.session.admit(96_000) is None


def test_a_turn_that_the_client_must_end_warns_before_it_is_full() -> None:
    dialog = Dialog(detection=False, max_turn_s=10.0)
    for _ in range(2):
        for _ in range(89):
            dialog.speak(100, "x")
        assert "backpressure" not in dialog.names()
        dialog.speak(300, "x")
        warnings = [event for event in dialog.read() if event["type"].endswith("backpressure")]
        assert [(event["limit_ms"], event["buffered_ms"] >= 9000) for event in warnings] == [(10_000, True)]
        dialog.commit()


def test_backlog_warns_once_at_half_and_refuses_at_the_limit() -> None:
    dialog = Dialog(max_backlog_ms=4000)
    dialog.speak(3000)
    assert dialog.names() == ["speech_started", "backpressure"]
    assert dialog.of("backpressure")[0]["limit_ms"] == 4000
    assert dialog.session.admit(48_000) is None
    refused = dialog.session.admit(72_000)
    assert refused is not None
    dialog.perform(refused)
    assert dialog.of("error")[0]["error"]["code"] == "input_audio_buffer_overflow"
    dialog.read()
    dialog.answer("catching up")
    dialog.answer("catching up")
    assert dialog.session.admit(72_000) is None
    dialog.speak(1000)
    assert "backpressure" not in dialog.names()
    dialog.speak(2000)
    assert dialog.names().count("backpressure") == 1


def test_an_append_over_the_limit_is_refused() -> None:
    dialog = Dialog(max_append_bytes=1000)
    assert dialog.session.admit(1000) is None
    refused = dialog.session.admit(1001)
    assert refused is not None
    dialog.perform(refused)
    assert dialog.of("error")[0]["error"]["param"] == "audio"


def test_bad_bytes_and_bad_events_get_an_error_each() -> None:
    dialog = Dialog()
    dialog.receive(AudioRefused(BadRequestError("odd", code="invalid_audio", param="audio"), "e1"))
    dialog.client("not json")
    dialog.client({"type": "response.create", "event_id": "e3"})
    errors = [event["error"] for event in dialog.read()]
    assert [error["code"] for error in errors] == ["invalid_audio", "invalid_json", "unsupported_event"]
    assert [error.get("event_id") for error in errors] == ["e1", None, "e3"]
    dialog.speak(320)
    assert dialog.names() == ["speech_started"]


def test_idle_sessions_are_closed_with_a_named_error() -> None:
    dialog = Dialog(idle_s=30.0)
    dialog.wait(29.0)
    assert dialog.close_code() is None
    dialog.silence(32)
    dialog.wait(29.9)
    assert dialog.close_code() is None
    dialog.wait(0.2)
    assert dialog.of("error")[0]["error"]["code"] == "session_idle"
    assert dialog.close_code() == 1008
    assert dialog.session.receive(DrainStarted(), now=dialog.now) == []
    assert dialog.session.admit(100) == []


def test_an_expiring_session_answers_what_is_pending() -> None:
    dialog = Dialog(max_session_s=2.0)
    dialog.speak(320)
    dialog.silence(640)
    dialog.speak(640)
    dialog.read()
    dialog.wait(2.0)
    assert dialog.names() == ["failed", "error"]
    assert dialog.of("failed")[0]["error"]["code"] == "session_expired"
    assert not dialog.pending, "nothing runs on"


def expect_input_ignored(dialog: Dialog) -> None:
    """Audio is refused by the name of what goes on; what was asked is answered, and then it is over."""
    dialog.read()
    refused = dialog.session.admit(320)
    assert refused is not None
    dialog.perform(refused)
    assert dialog.of("error")[0]["error"]["code"] == "server_draining"
    assert dialog.close_code() is None
    dialog.answer("bye")
    assert [name for name in dialog.names() if name != "delta"] == ["error", "completed", "error"]
    assert dialog.close_code() == 1012


def test_draining_hears_the_open_turn_out_then_closes() -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.receive(DrainStarted())
    assert dialog.names() == ["speech_started", "session.expiring"]
    assert dialog.session.admit(320) is None
    dialog.speak(2000)
    assert "speech_stopped" not in dialog.names()
    dialog.silence(600)
    assert dialog.names()[-4:] == ["speech_stopped", *COMMITTED]
    (committed,) = dialog.of("committed")
    assert committed["audio_end_ms"] > 2320, "nothing of it is cut off"
    expect_input_ignored(dialog)


def test_a_turn_without_end_is_cut_off_in_time_to_be_answered() -> None:
    dialog = Dialog(drain_s=10.0)
    dialog.speak(320)
    dialog.receive(DrainStarted())
    start = dialog.now
    for _ in range(79):
        dialog.speak(96, "on and on")
        dialog.wait(0.004)
    assert dialog.now - start < 8.0
    assert "speech_stopped" not in dialog.names()
    dialog.wait(0.2)
    assert "speech_stopped" in dialog.names()
    assert dialog.of("committed")[0]["audio_end_ms"] == 320 + 79 * 96
    expect_input_ignored(dialog)


def test_a_client_that_sends_nothing_more_is_not_waited_for() -> None:
    dialog = Dialog(drain_s=10.0)
    dialog.speak(320)
    dialog.receive(DrainStarted())
    dialog.speak(320)
    dialog.wait(0.9)
    assert "speech_stopped" not in dialog.names()
    dialog.speak(32)
    dialog.wait(0.9)
    assert "speech_stopped" not in dialog.names()
    dialog.wait(0.2)
    assert "speech_stopped" in dialog.names()
    expect_input_ignored(dialog)


def test_a_client_may_end_its_turn_in_a_drain() -> None:
    dialog = Dialog(detection=False)
    dialog.speak(500)
    dialog.receive(DrainStarted())
    dialog.speak(500)
    dialog.commit()
    assert dialog.names()[-3:] == COMMITTED
    expect_input_ignored(dialog)


def test_who_is_silent_is_closed_at_once() -> None:
    dialog = Dialog()
    dialog.silence(640)
    dialog.receive(DrainStarted())
    assert dialog.names() == ["session.expiring", "error"]
    assert dialog.close_code() == 1012


def test_no_other_turn_begins_in_a_drain() -> None:
    """Nor with the rest of the append in which the last one ended."""
    dialog = Dialog()
    dialog.speak(640)
    dialog.receive(DrainStarted())
    dialog.silence(640)
    dialog.speak(640)
    while dialog.pending:
        dialog.answer("hello")
    assert dialog.close_code() == 1012
    assert len(dialog.of("speech_started")) == len(dialog.of("completed")) == 1


def test_draining_does_not_wait_for_ever() -> None:
    dialog = Dialog(drain_s=5.0)
    dialog.speak(320)
    dialog.receive(DrainStarted())
    dialog.wait(3.0)
    dialog.receive(DrainStarted())
    dialog.wait(2.0)
    assert [event["type"] for event in dialog.sent[-2:]] == [
        "conversation.item.input_audio_transcription.failed",
        "error",
    ]
    assert dialog.close_code() == 1012


def test_update_reconfigures_and_shows_the_whole_session() -> None:
    dialog = Dialog()
    dialog.update(
        {
            "format": {"type": "audio/pcmu"},
            "transcription": {"model": "other", "language": "de", "prompt": "Küche"},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 700},
        }
    )
    (updated,) = dialog.read()
    shown = updated["session"]["audio"]["input"]
    assert shown["format"] == {"type": "audio/pcmu"}
    assert shown["transcription"] == {
        "model": "other",
        "language": "de",
        "prompt": "Küche",
        "delay": "medium",
    }
    assert shown["turn_detection"]["silence_duration_ms"] == 700
    assert shown["turn_detection"]["prefix_padding_ms"] == 300
    assert ConfigureAudio(AudioFormat("pcmu", 8000)) in dialog.effects
    configured = [effect for effect in dialog.effects if isinstance(effect, ConfigureTranscription)][-1]
    assert (configured.model, configured.options.language, configured.options.prompt) == (
        "other",
        "de",
        "Küche",
    )


def test_a_refused_update_changes_nothing() -> None:
    dialog = Dialog()
    before = dialog.session.settings
    dialog.update(
        {"format": {"type": "audio/pcma"}, "transcription": {"model": "whisper-9"}},
    )
    (event,) = dialog.read()
    assert event["error"]["code"] == "model_not_found"
    assert event["error"]["param"] == "session.audio.input.transcription.model"
    assert event["error"]["message"].endswith("served here: small, other")
    assert "`--alias`" in event["error"]["message"]
    assert dialog.session.settings == before


def test_session_created_greets_both_dialects() -> None:
    dialog = Dialog()
    created = dialog.sent[0]
    assert created["type"] == "session.created"
    assert created["id"] == created["session"]["id"] == "sess_1"
    assert created["created"] == 1_700_000_000
    assert created["session"]["type"] == "transcription"
    assert created["session"]["limits"]["max_append_bytes"] == 15 * 1024 * 1024
    assert "server_event_seq" in created["session"]["capabilities"]
    assert [type(effect) for effect in dialog.effects[:2]] == [ConfigureAudio, ConfigureTranscription]
