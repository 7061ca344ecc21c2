"""What comes before a model hears anything, against librosa: mel filters, resampling, where it is silent.

What is asked of it here is numpy's and scipy's work. Its own loops are compiled as it is imported, for 16 s
where nobody has before: they are left as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile
from sensorium.media.audio.mel import mel_filters
from sensorium.media.audio.resample import StreamingResampler
from sensorium.media.speech.cut_points import split
from sensorium.media.speech.voice_activity import VoiceActivityModel

CONVERSATION = Path(__file__).parents[3] / "examples" / "data" / "conversation.wav"


class Plain(ModuleType):
    """Stands for numba: its decorators change nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def decorator(*arguments: Any, **_options: Any) -> Any:  # noqa: ANN401
            return arguments[0] if arguments and isinstance(arguments[0], FunctionType) else decorator

        return decorator


@pytest.fixture(scope="module")
def librosa() -> Iterator[ModuleType]:
    """It, for these tests alone."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "numba", Plain("numba"))
        import librosa

        yield librosa
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "librosa":
                del sys.modules[name]


@pytest.mark.parametrize(("num_mels", "num_fft"), [(80, 400), (128, 400), (40, 512)])
def test_filters_are_its_own(librosa: ModuleType, num_mels: int, num_fft: int) -> None:
    """From which OpenAI took Whisper's."""
    expected = librosa.filters.mel(sr=16_000, n_fft=num_fft, n_mels=num_mels)
    filters = mel_filters(num_bins=num_fft // 2 + 1, num_mels=num_mels, sampling_rate=16_000, max_hz=8000.0)
    np.testing.assert_allclose(filters, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("rate", [8_000, 24_000, 44_100, 48_000])
def test_sound_is_resampled_as_it_does(librosa: ModuleType, rate: int) -> None:
    """Its polyphase filter, which is scipy's, on what both must pass: up to 3 kHz."""
    times = np.arange(rate) / rate
    tones = sum(np.sin(2 * np.pi * hz * times + hz) for hz in (180, 440, 1_250, 3_000)) / 8
    samples = np.asarray(tones * np.hanning(rate), np.float32)
    expected = librosa.resample(samples, orig_sr=rate, target_sr=16_000, res_type="polyphase")
    resampled = StreamingResampler(rate).push(samples, last=True)
    np.testing.assert_allclose(resampled, expected, rtol=0, atol=2e-3)


def test_speech_is_cut_where_it_hears_a_pause(librosa: ModuleType) -> None:
    samples = np.asarray(soundfile.read(CONVERSATION, dtype="float32")[0], np.float32)
    sounds = librosa.effects.split(samples, top_db=30)
    segments = split(
        samples, window_samples=12 * 16_000, search_samples=8 * 16_000, activity=VoiceActivityModel()
    )
    assert len(segments) > 2
    for _, cut in segments[:-1]:
        assert not any(start < cut < end for start, end in sounds)
