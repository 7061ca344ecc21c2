"""What the SDK sends of a camera: never what the server would refuse, and as much of it as it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.client.realtime.frame_pace import FramePace
from sensorium.realtime.dialogue.frames import FrameClock


def shown(max_fps: float, times_ms: list[int]) -> list[int]:
    """What is sent of frames at these times; the server's own clock takes all of it."""
    pace, clock = FramePace(max_fps), FrameClock(max_fps)
    sent = [at for at in times_ms if pace.admits(at)]
    for at in sent:
        now = (at - times_ms[0]) / 1000
        clock.came(clock.checked(at, now=now), now=now)
    return sent


@given(
    st.sampled_from([1.0, 2.0, 5.0]),
    st.lists(st.integers(0, 700), min_size=1, max_size=200),
    st.integers(0, 2**40),
)
def test_the_server_refuses_nothing_of_it(max_fps: float, gaps: list[int], start: int) -> None:
    times = [start]
    for gap in gaps:
        times.append(times[-1] + gap)
    sent = shown(max_fps, times)
    assert sent[0] == start
    assert len(sent) <= 1 + (times[-1] - start) * max_fps / 1000 + 1, "no more than the rate"


@pytest.mark.parametrize("fps", [10, 30, 29.97])
def test_a_faster_camera_is_seen_at_the_servers_rate(fps: float) -> None:
    times = [round(1000 * index / fps) for index in range(round(60 * fps))]
    assert len(shown(2.0, times)) == pytest.approx(120, abs=2)


def test_an_irregular_camera_of_the_servers_rate_loses_nothing() -> None:
    times = [500 * index + (-30 if index % 2 else 30) for index in range(100)]
    assert shown(2.0, times) == times


def test_a_server_that_is_behind_is_sent_less_and_later_more_again() -> None:
    pace = FramePace(2.0)
    assert [pace.admits(at) for at in range(0, 2_000, 500)] == [True] * 4
    pace.slow_down()
    slower = [at for at in range(2_000, 11_000, 500) if pace.admits(at)]
    assert 7 <= len(slower) <= 10, "half as many"
    again = [at for at in range(14_000, 20_000, 500) if pace.admits(at)]
    assert len(again) >= 11


def test_a_film_ahead_of_time_waits() -> None:
    pace = FramePace(2.0)
    assert pace.wait_s(1_000, now=50.0) == 0.0
    pace.admits(1_000)
    assert pace.wait_s(4_000, now=50.0) == 0.0
    assert pace.wait_s(9_000, now=50.0) == pytest.approx(4.0)
    assert pace.wait_s(9_000, now=55.0) == 0.0
