"""The quietest place among recent frames: longest silence first, then least speech, then latest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sensorium.realtime.seam import QuietPlaces
from sensorium.realtime.turns import FRAME_SAMPLES

LONG = 100 * FRAME_SAMPLES


def places(frames: list[tuple[float, bool]], num_samples: int = LONG) -> QuietPlaces:
    quiet = QuietPlaces(num_samples)
    for index, (probability, is_speech) in enumerate(frames):
        quiet.push((index + 1) * FRAME_SAMPLES, probability, is_speech=is_speech)
    return quiet


def speech(*probabilities: float) -> list[tuple[float, bool]]:
    return [(probability, True) for probability in probabilities]


SILENT = [(0.1, False)]


def test_the_middle_of_the_longest_silence_wins() -> None:
    frames = speech(0.9) + SILENT + speech(0.9) + SILENT * 3 + speech(0.2) + SILENT
    assert places(frames).best(after=0) == 3 * 512 + 3 * 256
    assert places(frames).best(after=4 * 512) == 4 * 512 + 512, "the rest of it still does"


def test_without_silence_the_frame_least_like_speech_is_cut() -> None:
    assert places(speech(0.9, 0.6, 0.8, 0.7)).best(after=0) == 512 + 256
    assert places(speech(0.9, 0.6, 0.8, 0.7)).best(after=513) == 3 * 512 + 256


def test_of_equal_places_the_latest_wins() -> None:
    assert places(speech(0.9) * 5).best(after=0) == 4 * 512 + 256
    assert places((speech(0.9) + SILENT) * 2).best(after=0) == 3 * 512 + 256


def test_nothing_is_found_where_nothing_was_heard() -> None:
    assert QuietPlaces(LONG).best(after=0) is None
    assert places(speech(0.9)).best(after=1) is None


def test_silence_across_a_gap_in_the_scores_is_not_one_run() -> None:
    quiet = QuietPlaces(LONG)
    for end in (512, 5120, 5632):
        quiet.push(end, 0.1, is_speech=False)
    assert quiet.best(after=0) == 5120


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=300), st.integers(0, 300 * 512))
def test_the_place_is_recent_and_behind_the_bound(frames: list[tuple[float, bool]], after: int) -> None:
    cut = places(frames, num_samples=20 * FRAME_SAMPLES).best(after)
    heard = len(frames) * FRAME_SAMPLES
    if cut is None:
        assert after > heard - FRAME_SAMPLES or not frames
    else:
        assert max(after, heard - 20 * FRAME_SAMPLES) < cut < heard
