"""What befalls speech keeps its words where they are, unless it is said faster or slower; always the same."""

from __future__ import annotations

from collections.abc import Callable

import hostile_sounds as sounds
import numpy as np
import pytest
from hostile_sounds import RATE_HZ, Samples


def tone(seconds: float = 2.0) -> Samples:
    """Bursts of a note, which rise and fall like syllables."""
    time = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    loudness = np.maximum(np.sin(2 * np.pi * 2 * time), 0)
    return (0.5 * np.sin(2 * np.pi * 300 * time) * loudness).astype(np.float32)


@pytest.mark.parametrize(
    "change",
    [
        sounds.over_telephone,
        sounds.over_opus,
        lambda samples: sounds.far_away(samples, seed=1),
        lambda samples: sounds.with_noise(samples, 10, seed=1),
    ],
)
def test_sounds_stay_where_they_are(change: Callable[[Samples], Samples]) -> None:
    before = tone()
    after = change(before)
    assert len(after) == len(before)
    assert np.array_equal(after, change(before))
    levels = [
        np.square(each[: len(each) // 400 * 400]).reshape(-1, 400).mean(axis=1) for each in (before, after)
    ]
    assert np.corrcoef(*levels)[0, 1] > 0.3


@pytest.mark.parametrize("tempo", [0.8, 1.3])
def test_speech_at_another_tempo_is_as_much_shorter_at_the_same_pitch(tempo: float) -> None:
    before = tone(4.0)
    after = sounds.at_tempo(before, tempo)
    assert len(after) == pytest.approx(len(before) / tempo, rel=0.05)
    notes = [np.argmax(np.abs(np.fft.rfft(each))) * RATE_HZ / len(each) for each in (before, after)]
    assert notes[1] == pytest.approx(notes[0], abs=5)


def test_a_sound_is_as_much_fainter_as_asked() -> None:
    speech = np.where(np.arange(RATE_HZ) % 2, 0.5, -0.5).astype(np.float32)
    noise = sounds.with_noise(speech, 20, seed=3) - speech
    assert np.mean(noise**2) == pytest.approx(0.25 / 100, rel=0.01)
