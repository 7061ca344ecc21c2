"""What a session sent becomes latencies and counts, and nothing is remembered of what is over."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from sensorium.actors.live.session_metrics import SessionMeter
from sensorium.actors.telemetry.metrics import Metrics
from sensorium.protocols.realtime.events import (
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    ConversationItemInputAudioTranscriptionFailed,
    ErrorDetail,
    InputAudioBufferCleared,
    InputAudioBufferCommitted,
    InputAudioBufferSpeechStarted,
    ServerEvent,
)
from sensorium.protocols.transcription.view import TokenUsage


def started(item_id: str) -> ServerEvent:
    return InputAudioBufferSpeechStarted(audio_start_ms=0, item_id=item_id)


def delta(item_id: str, text: str) -> ServerEvent:
    return ConversationItemInputAudioTranscriptionDelta(item_id=item_id, delta=text)


def committed(item_id: str) -> ServerEvent:
    return InputAudioBufferCommitted(item_id=item_id)


def completed(item_id: str, text: str) -> ServerEvent:
    usage = TokenUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return ConversationItemInputAudioTranscriptionCompleted(
        item_id=item_id, transcript=text, usage=usage, languages=[], logprobs=UNSET, words=UNSET
    )


def failed(item_id: str) -> ServerEvent:
    error = ErrorDetail(type="server_error", code="x", message="why")
    return ConversationItemInputAudioTranscriptionFailed(item_id=item_id, error=error)


def observe(meter: SessionMeter, *events: ServerEvent) -> None:
    for index, event in enumerate(events):
        meter.sent(event, now=float(index))


def value(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(name)


def test_latencies_of_a_turn() -> None:
    metrics = Metrics()
    observe(
        SessionMeter(metrics),
        *(started("a"), delta("a", "one"), delta("a", " two"), committed("a"), completed("a", "one two")),
    )
    assert value(metrics, "sensorium_first_partial_seconds_sum") == 1.0
    assert value(metrics, "sensorium_final_seconds_sum") == 1.0
    assert value(metrics, "sensorium_corrections_total") == 0.0


def test_a_final_that_differs_from_what_was_released_is_a_correction() -> None:
    metrics = Metrics()
    observe(SessionMeter(metrics), delta("a", "won"), committed("a"), completed("a", "one"))
    assert value(metrics, "sensorium_corrections_total") == 1.0


def test_a_turn_that_fails_is_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    observe(SessionMeter(metrics), committed("a"), failed("a"), committed("b"), completed("b", "one"))
    assert metrics.registry.get_sample_value("sensorium_turns_failed_total", {"code": "x"}) == 1.0
    assert [each.message for each in caplog.records] == ["the turn a was not transcribed: why"]


def test_nothing_is_remembered_of_items_that_are_over() -> None:
    meter = SessionMeter(Metrics())
    for item in ("a", "b", "c"):
        observe(meter, started(item), delta(item, "x"), committed(item), completed(item, "x"))
        observe(meter, started(item), delta(item, "x"), committed(item), failed(item))
        observe(meter, started(item), delta(item, "x"), InputAudioBufferCleared())
        observe(meter, started(item), InputAudioBufferCleared())
    assert meter.num_tracked == 0


def test_a_clear_leaves_committed_items_alone() -> None:
    metrics = Metrics()
    meter = SessionMeter(metrics)
    observe(meter, started("a"), delta("a", "won"), committed("a"))
    observe(meter, started("b"), InputAudioBufferCleared())
    assert meter.num_tracked == 1
    observe(meter, completed("a", "one"))
    assert value(metrics, "sensorium_corrections_total") == 1.0


def test_how_far_hypotheses_are_behind_and_what_they_held_back() -> None:
    metrics = Metrics()
    meter = SessionMeter(metrics)
    for lag_s in (0.2, 0.4):
        meter.hypothesis(lag_s)
    meter.withheld(3)
    assert value(metrics, "sensorium_lag_seconds_count") == 2.0
    assert value(metrics, "sensorium_lag_seconds_sum") == 0.2 + 0.4
    assert value(metrics, "sensorium_releases_withheld_total") == 3.0
