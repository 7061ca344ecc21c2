"""The class of a request: interactive unless it is much work or asks to be late, never live."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.service_class import lane_of, work_s
from sensorium.protocols.engine.messages import Lane


@pytest.mark.parametrize(
    ("lane", "service"),
    [
        (lane_of(), "interactive"),
        (lane_of(priority=-1000), "interactive"),
        (lane_of(priority=1), "batch"),
        (lane_of(num_answers=8), "interactive"),
        (lane_of(num_answers=9), "batch"),
        (lane_of(num_open=16), "interactive"),
        (lane_of(num_open=17), "batch"),
        (lane_of(audio_s=600.0), "interactive"),
        (lane_of(audio_s=601.0), "batch"),
        (lane_of(audio_s=work_s(601.0, 1)), "batch"),
        (lane_of(audio_s=work_s(8.0, 20)), "interactive"),
        (lane_of(audio_s=work_s(8.0, 21)), "batch"),
    ],
)
def test_much_work_is_batch(lane: Lane, service: str) -> None:
    assert lane.service == service


@given(st.integers(-1000, 1000), st.integers(0, 200), st.integers(0, 200), st.floats(0, 1e6))
def test_no_client_makes_a_request_live(
    priority: int, num_answers: int, num_open: int, audio_s: float
) -> None:
    lane = lane_of(priority=priority, num_answers=num_answers, num_open=num_open, audio_s=audio_s)
    assert lane.service != "live"
    assert lane.priority == priority
