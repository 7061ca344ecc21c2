"""Prometheus text → numbers → work per audio second."""

from __future__ import annotations

import pytest
from sensorium.client.metrics import Work, parse_metrics, pool_work, work_between

TEXT = """# HELP sensorium_decode_tokens_total Decoder tokens generated
# TYPE sensorium_decode_tokens_total counter
sensorium_decode_tokens_total{model="a"} 30.0
sensorium_decode_tokens_total{model="b"} 12.0
sensorium_sessions_active 2
sensorium_final_seconds_bucket{le="+Inf"} 1e3
nonsense line
broken_value x
"""


def test_labels_are_summed_and_noise_is_skipped() -> None:
    assert parse_metrics(TEXT) == {
        "sensorium_decode_tokens_total": 42.0,
        "sensorium_sessions_active": 2.0,
        "sensorium_final_seconds_bucket": 1000.0,
    }


def test_work_is_the_difference_per_audio_second() -> None:
    before = {"sensorium_draft_tokens_total": 10.0, "sensorium_draft_accepted_total": 0.0}
    after = {
        "sensorium_draft_tokens_total": 50.0,
        "sensorium_draft_accepted_total": 30.0,
        "sensorium_encoder_tokens_total": 400.0,
    }
    work = work_between(before, after, 4.0)
    assert work is not None
    assert work.per_audio_s == {"encoder tokens": 100.0, "draft tokens": 10.0}
    assert work.draft_accepted_share == 0.75


def test_servers_without_our_counters_have_no_work() -> None:
    assert work_between({}, {"vllm:num_requests": 3.0}, 1.0) is None
    assert work_between({}, {"sensorium_encoder_tokens_total": 3.0}, 0.0) is None


def test_rounds_are_pooled_by_their_audio() -> None:
    pooled = pool_work([Work(1.0, {"x": 10.0}), None, Work(3.0, {"x": 2.0}, 0.5)])
    assert pooled is not None
    assert pooled.per_audio_s == {"x": pytest.approx(4.0)}
    assert pooled.draft_accepted_share == 0.5
    assert pool_work([None]) is None


def test_the_servers_own_names_are_the_ones_read() -> None:
    server_metrics = pytest.importorskip("sensorium.actors.telemetry.metrics")
    from sensorium.protocols.engine.statistics import EngineStatistics

    metrics = server_metrics.Metrics()
    counted = EngineStatistics(
        num_steps=1,
        num_windows_encoded=1,
        num_encoder_tokens=1,
        num_prefill_tokens=1,
        num_decode_tokens=1,
        num_draft_tokens=1,
        num_draft_accepted=1,
        busy_s=1.0,
    )
    metrics.add_engine("m", lambda: counted)
    after = parse_metrics(b"".join(metrics.parts()).decode())
    work = work_between({}, after, 1.0)
    assert work is not None
    assert len(work.per_audio_s) == 8
    assert work.draft_accepted_share == 1.0
