"""Who speaks is told from who pushes a recording, whatever the network does."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from sensorium.realtime.turns.arrival import LEEWAY, MAX_LATE_S, SLACK_S, Arrival


def pushed_at(pieces: Iterable[tuple[float, float]]) -> list[bool]:
    """Whether it is pushed after each piece, (when, seconds)."""
    arrival = Arrival()
    verdicts = []
    for when, seconds in pieces:
        arrival.came(seconds, now=when)
        verdicts.append(arrival.is_pushed)
    return verdicts


@given(
    st.lists(st.floats(0.005, 1.0), min_size=1, max_size=60),
    st.floats(1.0, LEEWAY),
    st.floats(0, 1e6),
)
def test_speech_as_it_is_spoken_is_never_pushed(pieces: list[float], speed: float, start: float) -> None:
    now, came = start, []
    for seconds in pieces:
        came.append((now, seconds))
        now += seconds / speed
    assert not any(pushed_at(came))


@given(st.floats(0.02, 1.0), st.floats(3.0, 1000.0))
def test_a_recording_sent_at_full_speed_soon_is(seconds: float, speed: float) -> None:
    num = int(4 * SLACK_S / seconds) + 1
    verdicts = pushed_at((number * seconds / speed, seconds) for number in range(num))
    first = verdicts.index(True)
    assert all(verdicts[first:])
    assert first * seconds <= 2 * SLACK_S


def test_what_a_network_held_back_may_come_at_once() -> None:
    spoken = [(number / 10, 0.1) for number in range(600)]
    stall_s = MAX_LATE_S / LEEWAY - 1
    held_back = [(60.0 + stall_s, 0.1)] * round(stall_s * 10)
    after = [(60.0 + stall_s + number / 10, 0.1) for number in range(100)]
    assert not any(pushed_at(spoken + held_back + after))


def test_long_silence_earns_no_recording() -> None:
    assert pushed_at([(0.0, 0.1), (3600.0, MAX_LATE_S + SLACK_S - 0.1), (3600.0, 0.2)]) == [
        False,
        False,
        True,
    ]


def test_who_was_ahead_is_so_no_more_after_a_while() -> None:
    ahead = [(0.0, 30.0)]
    spoken = [(float(second), 1.0) for second in range(1, 200)]
    verdicts = pushed_at(ahead + spoken)
    assert verdicts[0]
    assert not verdicts[-1]
