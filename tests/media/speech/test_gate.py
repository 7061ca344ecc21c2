"""Noise, hum and chords hold no speech; speech is found, however faint, however it arrives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.speech.gate import SpeechGate, speaks_for
from sensorium.media.speech.voice_activity import FRAME_SAMPLES, VoiceActivityModel
from support.signals import WITHOUT_SPEECH, FloatArray, white_noise

DATA = Path(__file__).parents[3] / "examples" / "data"
MODEL = VoiceActivityModel()


def spoken(name: str = "kitchen_lights") -> FloatArray:
    samples, rate = soundfile.read(DATA / f"{name}.wav", dtype="float32")
    assert rate == 16_000
    return np.asarray(samples, np.float32)


def counting_model(monkeypatch: pytest.MonkeyPatch) -> tuple[VoiceActivityModel, list[FloatArray]]:
    """A model, and the frames it has scored."""
    model, scored = VoiceActivityModel(), list[FloatArray]()
    score = model.score

    def spy(frames: FloatArray, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        scored.extend(frames)
        return score(frames, states)

    monkeypatch.setattr(model, "score", spy)
    return model, scored


def has_speech(samples: FloatArray, model: VoiceActivityModel = MODEL) -> bool:
    """Whether anybody speaks in `samples` [n], all pushed at once."""
    gate = SpeechGate(model)
    gate.push(samples)
    return gate.has_speech(len(samples))


@pytest.mark.parametrize("name", WITHOUT_SPEECH)
def test_nobody_speaks_in_noise(name: str) -> None:
    samples = WITHOUT_SPEECH[name](6.0)
    assert not has_speech(samples)
    assert not speaks_for(MODEL, samples, 0.01)


@pytest.mark.parametrize("name", ["kitchen_lights", "buenos_dias"])
@pytest.mark.parametrize(("gain", "noise_db"), [(1.0, -90), (1.0, -25), (0.03, -55), (0.003, -100)])
def test_speech_is_heard(name: str, gain: float, noise_db: float) -> None:
    speech = spoken(name)
    assert has_speech(gain * speech + white_noise(len(speech) / 16_000, level_db=noise_db))


@pytest.mark.parametrize("gain", [1.0, 0.1, 0.01])
def test_a_short_word_out_of_silence_is_heard(gain: float) -> None:
    """As a turn that begins with what was said before it cut off; the network alone misses the faint ones."""
    speech, noise = spoken("conversation"), white_noise(1.0, level_db=-85)
    loud = [start for start in range(8_000, 160_000, 4_800) if np.std(speech[start : start + 4_800]) > 0.03]
    assert len(loud) > 10
    for start in loud[:12]:
        samples = noise.copy()
        samples[6_000:10_800] += gain * speech[start : start + 4_800]
        assert has_speech(samples)


def test_its_length_is_measured() -> None:
    speech = spoken()
    pauses = np.concatenate((np.zeros(32_000, np.float32), speech, np.zeros(32_000, np.float32)))
    assert speaks_for(MODEL, pauses, 0.5)
    assert not speaks_for(MODEL, pauses, len(speech) / 16_000)


def test_it_is_measured_no_further_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model, scored = counting_model(monkeypatch)
    assert speaks_for(model, np.concatenate([spoken()] * 5), 0.5)
    assert len(scored) * FRAME_SAMPLES < 2 * len(spoken())


def test_silence_before_speech_hides_nothing() -> None:
    late = np.concatenate((np.zeros(160_000, np.float32), spoken()))
    gate = SpeechGate(MODEL)
    gate.push(late)
    assert gate.has_speech(len(late))
    assert not gate.has_speech(160_000)


@settings(max_examples=20, deadline=None)
@given(
    start=st.integers(0, 20_000),
    sizes=st.lists(st.integers(1, 9_000), min_size=1, max_size=8),
    asked=st.integers(0, 30_000),
)
def test_a_growing_stretch_is_judged_like_the_whole(start: int, sizes: list[int], asked: int) -> None:
    samples = spoken()[start:][: sum(sizes)]
    gate, pushed = SpeechGate(MODEL), 0
    for size in sizes:
        gate.push(samples[pushed : pushed + size])
        pushed = min(len(samples), pushed + size)
        assert gate.num_samples == pushed
        assert gate.has_speech(pushed) == has_speech(samples[:pushed])
    asked = min(asked, pushed)
    assert gate.has_speech(asked) == has_speech(samples[:asked])


def test_it_looks_no_further_than_the_speech_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    model, scored = counting_model(monkeypatch)
    speech = spoken()
    gate = SpeechGate(model)
    gate.push(speech)
    num_heard = len(scored)
    first = next(n for n in range(0, len(speech), FRAME_SAMPLES) if has_speech(speech[:n]))
    assert num_heard * FRAME_SAMPLES < first + 5 * FRAME_SAMPLES
    assert not gate.has_speech(first - FRAME_SAMPLES)
    assert gate.has_speech(first)
    assert len(scored) == num_heard


class Scores(VoiceActivityModel):
    """Scores that were written down."""

    def __init__(self, scores: list[float]) -> None:
        self._scores = iter(scores)

    def score(self, frames: FloatArray, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.array([next(self._scores)], np.float32), states


@pytest.mark.parametrize(
    ("scores", "is_speech"),
    [
        ([0.1] * 20 + [0.9] + [0.1] * 20, False),
        ([0.35, 0.1, 0.1, 0.4, 0.1] * 2 + [0.1] * 40, False),
        ([0.29] * 100, False),
        ([0.1, 0.9, 0.8, 0.6, 0.1], True),
        ([0.35] * 6, True),
    ],
)
def test_a_frame_that_resembles_speech_is_none(scores: list[float], is_speech: bool) -> None:
    """Music has such frames, here and there."""
    samples = white_noise(len(scores) * FRAME_SAMPLES / 16_000, level_db=-30)
    assert has_speech(samples, Scores(scores)) == is_speech


def test_less_than_a_frame_is_no_speech() -> None:
    for size in (0, 1, FRAME_SAMPLES - 1):
        assert not has_speech(spoken()[8_000 : 8_000 + size])
