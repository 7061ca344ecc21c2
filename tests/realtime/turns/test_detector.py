"""Turn detection: hysteresis, minimum speech, pauses and the exact hold time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sensorium.realtime.turns.detector import (
    FRAME_SAMPLES,
    SpeechStarted,
    SpeechStopped,
    TurnDetector,
    TurnDetectorConfig,
    TurnEvent,
)

CONFIG = TurnDetectorConfig(threshold=0.5, min_speech=3 * 512, pause=3200, silence=8000)


def run(probabilities: list[float], config: TurnDetectorConfig = CONFIG) -> list[tuple[int, TurnEvent]]:
    """(index of the frame, event) of everything that happens."""
    detector = TurnDetector(config)
    return [
        (index, event)
        for index, probability in enumerate(probabilities)
        for event in detector.push((index + 1) * FRAME_SAMPLES, probability)
    ]


def test_a_turn_dates_from_its_first_frame() -> None:
    assert run([0.0] * 4 + [0.9] * 5) == [(6, SpeechStarted(4 * 512))]


def test_bursts_shorter_than_the_minimum_start_nothing() -> None:
    assert run([0.9, 0.9, 0.0] * 20) == []


def test_a_turn_of_the_least_speech_ends_after_as_much_silence_as_any() -> None:
    frames = [0.0] * 40 + [0.9] * 3 + [0.0] * 40
    assert run(frames) == [(42, SpeechStarted(40 * 512)), (43 + 16 - 1, SpeechStopped(43 * 512))]


def paused_frames(probabilities: list[float]) -> list[int]:
    """Indices of the frames after which the turn is paused."""
    detector = TurnDetector(CONFIG)
    found = []
    for index, probability in enumerate(probabilities):
        detector.push((index + 1) * FRAME_SAMPLES, probability)
        if detector.paused:
            found.append(index)
    return found


def test_pause_and_stop_come_at_the_first_frame_that_completes_their_time() -> None:
    frames = [0.9] * 4 + [0.0] * 40
    assert paused_frames(frames) == list(range(4 + 7 - 1, 4 + 16 - 1))
    assert run(frames)[1:] == [(4 + 16 - 1, SpeechStopped(4 * 512))]


def test_speech_after_a_pause_resumes_the_same_turn() -> None:
    frames = [0.9] * 4 + [0.0] * 10 + [0.9] + [0.0] * 40
    assert paused_frames(frames) == [*range(10, 14), *range(15 + 7 - 1, 15 + 16 - 1)]
    assert [type(event) for _, event in run(frames)] == [SpeechStarted, SpeechStopped]


def test_running_speech_holds_down_to_the_release_and_silence_needs_the_full_threshold() -> None:
    held = run([0.9] * 4 + [0.4] * 100)
    assert [type(event) for _, event in held] == [SpeechStarted]
    fallen = run([0.9] * 4 + [0.3] + [0.4] * 100)
    assert fallen[-1][1] == SpeechStopped(4 * 512)


def test_reset_forgets_and_reconfigure_goes_on() -> None:
    detector = TurnDetector(CONFIG)
    for index in range(5):
        detector.push((index + 1) * 512, 0.9)
    detector.reconfigure(TurnDetectorConfig(threshold=0.5, min_speech=512, pause=512, silence=1024))
    assert detector.push(6 * 512, 0.0) == []
    assert detector.paused
    assert detector.push(7 * 512, 0.0) == [SpeechStopped(5 * 512)]
    detector.push(8 * 512, 0.9)
    detector.reset()
    assert not detector.speaking
    assert detector.push(9 * 512, 0.0) == []


@given(
    st.lists(st.floats(0, 1), max_size=200),
    st.floats(0, 1),
    st.integers(0, 4000),
    st.integers(0, 4000),
    st.integers(0, 4000),
)
def test_starts_and_stops_alternate_and_hold_their_times(
    probabilities: list[float], threshold: float, min_speech: int, pause: int, extra: int
) -> None:
    silence = pause + extra
    config = TurnDetectorConfig(threshold=threshold, min_speech=min_speech, pause=pause, silence=silence)
    speaking, previous_end = False, 0
    for index, event in run(probabilities, config):
        now = (index + 1) * FRAME_SAMPLES
        match event:
            case SpeechStarted(start):
                assert not speaking
                speaking = True
                assert start >= previous_end
                assert now - start >= min(min_speech, now)
            case SpeechStopped(end):
                assert speaking
                speaking, previous_end = False, end
                assert silence <= now - end < max(silence, 1) + FRAME_SAMPLES


@given(
    st.lists(st.sampled_from([0.0, 0.4, 0.5, 0.9]), max_size=30), st.lists(st.sampled_from([0.0, 0.4, 0.5]))
)
def test_after_a_reset_nothing_counts_that_was_heard_before(before: list[float], after: list[float]) -> None:
    used, new = TurnDetector(CONFIG), TurnDetector(CONFIG)
    for index, probability in enumerate(before):
        used.push((index + 1) * FRAME_SAMPLES, probability)
    used.reset()
    for index, probability in enumerate(after, len(before)):
        end_sample = (index + 1) * FRAME_SAMPLES
        assert used.push(end_sample, probability) == new.push(end_sample, probability)
        assert used.candidate_start == new.candidate_start
