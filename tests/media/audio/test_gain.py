"""Faint audio is heard like loud audio, loud audio as it is, and nothing is ever clipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.audio.gain import MAX_GAIN, RELEASE_DB_PER_S, TARGET_PEAK, LevelControl
from sensorium.media.speech.voice_activity import FRAME_SAMPLES, VoiceActivityModel, VoiceActivityStream
from support.signals import WITHOUT_SPEECH, FloatArray, white_noise

DATA = Path(__file__).parents[3] / "examples" / "data"
MODEL = VoiceActivityModel()


def frames(*peaks: float) -> FloatArray:
    wave = np.sin(np.linspace(0, 40, FRAME_SAMPLES, dtype=np.float32))
    return np.array([peak * wave / np.abs(wave).max() for peak in peaks], np.float32)


def peaks(levelled: FloatArray) -> list[float]:
    return [float(each) for each in np.abs(levelled).max(axis=1)]


def test_loud_audio_is_left_alone() -> None:
    loud = frames(TARGET_PEAK, 0.9, 1.0, 0.5)
    np.testing.assert_array_equal(LevelControl().apply(loud), loud)


def test_faint_audio_is_lifted_to_the_target_and_no_further_than_the_bound() -> None:
    assert peaks(LevelControl().apply(frames(0.01, 0.01))) == pytest.approx([TARGET_PEAK] * 2, rel=0.05)
    assert peaks(LevelControl().apply(frames(1e-4))) == pytest.approx([1e-4 * MAX_GAIN])
    assert peaks(LevelControl().apply(frames(0.0))) == [0.0]


def test_the_gain_falls_at_once_and_rises_slowly() -> None:
    one_second = 16_000 / FRAME_SAMPLES
    levelled = peaks(LevelControl().apply(frames(0.001, 0.6, *[0.01] * 400)))
    assert levelled[1] == pytest.approx(0.6)
    lifted_db = 20 * np.log10(levelled[2 + round(10 * one_second)] / levelled[2 + round(5 * one_second)])
    assert levelled[2] == pytest.approx(0.01, rel=0.05), "a pause in loud speech stays one"
    assert lifted_db == pytest.approx(5 * RELEASE_DB_PER_S, abs=1.0)


@settings(deadline=None, max_examples=50)
@given(
    levels=st.lists(st.floats(0, 1, width=32), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=6),
)
def test_it_never_clips_and_does_not_depend_on_the_calls(levels: list[float], cuts: list[int]) -> None:
    audio = frames(*levels).reshape(-1, FRAME_SAMPLES)
    whole, level = LevelControl().apply(audio), LevelControl()
    parts = [level.apply(part) for part in np.split(audio, sorted(min(cut, len(audio)) for cut in cuts))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert np.abs(whole).max(initial=0.0) <= 1.0


def heard(samples: FloatArray) -> FloatArray:
    scores = VoiceActivityStream(MODEL).push(samples)
    return np.array([probability for _, probability in scores], np.float32)


def test_speech_50_db_down_is_heard_where_loud_speech_is() -> None:
    samples = np.asarray(soundfile.read(DATA / "kitchen_lights.wav", dtype="float32")[0], np.float32)
    loud = heard(samples)
    faint = heard(samples * np.float32(0.003 / np.abs(samples).max()))
    assert (faint[loud >= 0.5] >= 0.5).mean() > 0.95
    assert (faint[loud < 0.2] < 0.5).mean() > 0.9


@pytest.mark.parametrize("name", WITHOUT_SPEECH)
def test_no_noise_is_lifted_to_speech(name: str) -> None:
    """At any level, and where it goes on behind speech."""
    noise = WITHOUT_SPEECH[name](4.0)
    for gain in (1.0, 0.03, 0.003):
        assert (heard(np.float32(gain) * noise) >= 0.5).sum() == 0
    spoken = np.asarray(soundfile.read(DATA / "kitchen_lights.wav", dtype="float32")[0], np.float32)
    behind = heard(np.concatenate((0.05 * spoken, white_noise(12.0, level_db=-70))))
    assert (behind[len(spoken) // FRAME_SAMPLES + 10 :] >= 0.5).sum() == 0
