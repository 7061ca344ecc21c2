"""Cuts fall on quiet places, cover everything, and are the same for a stream as for a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.speech.cut_points import HOP_SAMPLES, best_cut, find_cut, split
from sensorium.media.speech.voice_activity import VoiceActivityModel

CONVERSATION = Path(__file__).parents[3] / "examples" / "data" / "conversation.wav"
FloatArray = npt.NDArray[np.float32]


def loud(num_samples: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).standard_normal(num_samples).astype(np.float32)


def test_the_cut_is_in_the_middle_of_the_quiet_place() -> None:
    samples = loud(32_000)
    samples[20_000:24_000] *= 0.01
    assert find_cut(samples, search_samples=16_000) == pytest.approx(22_000, abs=2 * HOP_SAMPLES)


def test_the_search_ends_where_it_is_told() -> None:
    samples = loud(32_000)
    samples[10_000:14_000] = 0
    samples[30_000:32_000] *= 0.5
    assert 10_000 < find_cut(samples, search_samples=32_000) < 14_000
    assert find_cut(samples, search_samples=8_000) >= 32_000 - 8_000


def test_of_equally_quiet_places_the_latest_wins() -> None:
    assert find_cut(np.zeros(16_000, np.float32), search_samples=8_000) >= 16_000 - 17 * HOP_SAMPLES
    # Loud and silent in turns: rounding of the loud parts must not make one silence quieter.
    samples = loud(32_000) * 1000
    samples[20_000:23_000] = 0
    samples[26_000:29_000] = 0
    assert 26_000 < find_cut(samples, search_samples=16_000) < 29_000


def test_a_long_gap_is_better_than_a_silent_short_one() -> None:
    """A stop consonant is silent for 50 ms, and inside a word."""
    samples = loud(32_000)
    samples[27_000:27_640] = 0
    samples[22_000:24_400] *= 0.1
    assert 22_000 < find_cut(samples, search_samples=16_000) < 24_400


def test_what_is_no_speech_is_better_than_what_is_as_quiet() -> None:
    samples = loud(32_000)
    samples[4_096:7_168] *= 0.05
    samples[10_240:13_312] *= 0.05
    probabilities = np.ones(62)
    assert 10_240 < best_cut(samples, probabilities) < 13_312
    probabilities[8:14] = 0.1
    assert 4_096 < best_cut(samples, probabilities) < 7_168


def test_a_long_pause_is_better_than_a_short_one_behind_it() -> None:
    samples = loud(8 * 16_000)
    for start, end in ((48_000, 57_600), (96_000, 99_200)):  # 0.6 s, and 0.2 s three seconds later
        samples[start:end] *= 0.001
    probabilities = np.ones(len(samples) // 512)
    probabilities[94:112] = probabilities[188:193] = 0.05
    assert 48_000 < best_cut(samples, probabilities) < 57_600
    assert 96_000 < best_cut(samples[60_000:], probabilities[117:]) + 60_000 < 99_200
    assert 96_000 < best_cut(samples, ()) < 99_200, "who speaks is not known"


def test_how_loud_it_is_does_not_matter() -> None:
    samples = loud(32_000) * np.repeat(np.random.default_rng(1).uniform(0.02, 1, 40), 800).astype(np.float32)
    cuts = {best_cut(samples * np.float32(gain), np.full(62, 0.9)) for gain in (1.0, 0.1, 0.001)}
    assert len(cuts) == 1


@pytest.mark.parametrize("num_samples", [1, 159, 1_000])
def test_too_little_to_search_is_a_hard_cut(num_samples: int) -> None:
    assert find_cut(loud(num_samples), search_samples=16_000) == num_samples
    assert find_cut(loud(16_000), search_samples=num_samples) == 16_000


def test_nothing_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="nothing"):
        find_cut(np.zeros(0, np.float32), search_samples=100)
    assert split(np.zeros(0, np.float32), window_samples=100, search_samples=10) == []
    with pytest.raises(ValueError, match="window_samples"):
        split(loud(10), window_samples=0, search_samples=10)


def test_what_fits_is_not_cut() -> None:
    assert split(loud(16_000), window_samples=16_000, search_samples=4_000) == [(0, 16_000)]
    assert len(split(loud(16_001), window_samples=16_000, search_samples=4_000)) == 2


def streamed(
    samples: FloatArray, chunk_sizes: list[int], *, window_samples: int, search_samples: int
) -> list[tuple[int, int]]:
    """What a live turn does: audio arrives, and the open segment is cut whenever it outgrows the window."""
    segments: list[tuple[int, int]] = []
    start = received = 0
    sizes = iter([*chunk_sizes, len(samples)])
    while received < len(samples):
        received = min(len(samples), received + next(sizes))
        while received - start > window_samples:
            cut = start + find_cut(samples[start : start + window_samples], search_samples=search_samples)
            segments.append((start, cut))
            start = cut
    if received > start:
        segments.append((start, received))
    return segments


@settings(deadline=None, max_examples=100)
@given(
    num_samples=st.integers(0, 30_000),
    chunk_sizes=st.lists(st.integers(0, 6_000), max_size=12),
    window_samples=st.integers(1_000, 9_000),
    search_samples=st.integers(0, 9_000),
    gain_every=st.integers(500, 5_000),
)
def test_segments_cover_everything_and_a_stream_cuts_alike(
    num_samples: int, chunk_sizes: list[int], window_samples: int, search_samples: int, gain_every: int
) -> None:
    gains = np.random.default_rng(gain_every).choice([0.0, 0.1, 1.0], size=num_samples // gain_every + 1)
    samples = loud(num_samples) * np.repeat(gains, gain_every)[:num_samples].astype(np.float32)
    segments = split(samples, window_samples=window_samples, search_samples=search_samples)
    position = 0
    for start, end in segments:
        assert start == position
        assert 0 < end - start <= window_samples
        position = end
    assert position == num_samples
    options = {"window_samples": window_samples, "search_samples": search_samples}
    assert streamed(samples, chunk_sizes, **options) == segments


def test_a_stream_and_a_file_hear_alike() -> None:
    """With voice activity, too."""
    model, samples = VoiceActivityModel(), loud(60_000)
    segments = split(samples, window_samples=20_000, search_samples=12_000, activity=model)
    start = 0
    for first, last in segments[:-1]:
        assert first == start
        start += find_cut(samples[first : first + 20_000], search_samples=12_000, activity=model)
        assert last == start
