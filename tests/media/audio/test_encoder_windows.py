"""Windows of an utterance equal the Qwen3-ASR extractor's features, and do not depend on the chunking."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.audio.encoder_windows import WindowedLogMel
from sensorium.media.audio.features import FeatureConfig
from sensorium.protocols.engine.messages import EncoderItem
from sensorium.protocols.errors import ModelLoadError
from transformers import Qwen3ASRFeatureExtractor

EXTRACTORS = {"Qwen3ASRFeatureExtractor": 128}
FloatArray = npt.NDArray[np.float32]
CONFIG = FeatureConfig(num_mel_bins=128, min_samples=8_000)
SMALL = FeatureConfig(num_mel_bins=8, min_samples=8_000)
SMALL_WINDOW = 30
"""Frames: an utterance of a second has windows to change."""


def new(config: FeatureConfig = CONFIG, window_frames: int = 800) -> WindowedLogMel:
    return WindowedLogMel(config, window_frames=window_frames, num_tokens=lambda frames: frames // 8)


def noise(num_samples: int, scale: float = 0.1, seed: int = 0) -> FloatArray:
    return (np.random.default_rng(seed).standard_normal(num_samples) * scale).astype(np.float32)


def tones(num_samples: int) -> FloatArray:
    times = np.arange(num_samples) / 16_000
    harmonics = [np.sin(2 * np.pi * (200 * k + 30 * times) * times) / k for k in range(1, 12)]
    samples: FloatArray = (0.1 * np.sum(harmonics, axis=0)).astype(np.float32)
    return samples


def silence_then_shout(num_samples: int) -> FloatArray:
    samples = noise(num_samples, 1e-4)
    samples[num_samples * 2 // 3 :] *= 5_000
    return samples


SIGNALS: dict[str, Callable[[int], FloatArray]] = {
    "noise": noise,
    "tones": tones,
    "silence, then a shout": silence_then_shout,
    "silence": lambda n: np.zeros(n, np.float32),
    "an impulse at the end": lambda n: np.eye(1, n, n - 1, dtype=np.float32)[0],
}


def features_of(item: EncoderItem) -> FloatArray:
    return np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)


def whole(samples: FloatArray, config: FeatureConfig = CONFIG, window_frames: int = 800) -> list[EncoderItem]:
    windows = new(config, window_frames)
    windows.append(samples)
    return list(windows.items())


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize(
    "num_samples", [1, 320, 7_999, 8_000, 8_001, 16_039, 16_040, 127_999, 128_000, 128_159, 128_160, 300_123]
)
def test_windows_equal_the_extractor(name: str, num_samples: int) -> None:
    samples = SIGNALS[name](num_samples)
    reference = Qwen3ASRFeatureExtractor()(
        samples, sampling_rate=16_000, padding=True, return_attention_mask=True, return_tensors="np"
    )
    num_frames = int(reference["attention_mask"].sum())
    expected = reference["input_features"][0][:, :num_frames]
    items = whole(samples)
    shapes = [item.features.shape for item in items]
    assert shapes == [(128, min(800, num_frames - start)) for start in range(0, num_frames, 800)]
    assert [item.num_tokens for item in items] == [frames // 8 for _, frames in shapes]
    np.testing.assert_allclose(np.concatenate([features_of(item) for item in items], 1), expected, atol=1e-4)


def test_nothing_yet_has_no_windows() -> None:
    windows = new()
    assert windows.items() == ()
    windows.append(np.zeros(0, np.float32))
    assert (windows.items(), windows.num_frames, windows.num_windows) == ((), 0, 0)


AMPLITUDES = st.sampled_from([0.0, 1e-5, 1e-3, 0.05, 1.0])


@settings(deadline=None, max_examples=150)
@given(
    pieces=st.lists(
        st.tuples(st.one_of(st.integers(0, 400), st.integers(0, 20_000)), AMPLITUDES, st.booleans()),
        max_size=12,
    )
)
def test_however_it_came_the_windows_are_those_of_the_whole(pieces: list[tuple[int, float, bool]]) -> None:
    windows = new(SMALL, SMALL_WINDOW)
    samples = np.zeros(0, np.float32)
    for number, (size, amplitude, ask) in enumerate([*pieces, (0, 0.0, True)]):
        piece = noise(size, amplitude, seed=number)
        windows.append(piece)
        samples = np.concatenate((samples, piece))
        if ask:
            assert list(windows.items()) == whole(samples, SMALL, SMALL_WINDOW)
            assert windows.num_windows == len(windows.items())


@settings(deadline=None, max_examples=100)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 12_000), AMPLITUDES, st.one_of(st.none(), st.floats(0, 1)), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_going_back_is_as_if_nothing_had_followed(
    steps: list[tuple[int, float, float | None, bool]],
) -> None:
    windows = new(SMALL, SMALL_WINDOW)
    samples = np.zeros(0, np.float32)
    for number, (size, amplitude, share, ask) in enumerate([*steps, (0, 0.0, None, True)]):
        if share is None:
            piece = noise(size, amplitude, seed=number)
            windows.append(piece)
            samples = np.concatenate((samples, piece))
        else:
            samples = samples[: round(share * len(samples))]
            windows.rewind(len(samples), samples[-windows.num_rewind_samples :])
        if ask:
            assert list(windows.items()) == whole(samples, SMALL, SMALL_WINDOW)


def test_one_sample_at_a_time_equals_the_whole() -> None:
    samples = np.concatenate((noise(7_000, 1e-4), noise(2_500, 0.5)))
    windows = new(SMALL, SMALL_WINDOW)
    for end in range(1, len(samples) + 1):
        windows.append(samples[end - 1 : end])
        if end % 97 == 0 or end in (7_999, 8_000, 8_001):
            assert list(windows.items()) == whole(samples[:end], SMALL, SMALL_WINDOW)


def count_builds(windows: WindowedLogMel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    built: list[int] = []
    build = windows._build

    def counting(index: int, num_frames: int, edge: FloatArray, peak: np.float32) -> EncoderItem:
        built.append(index)
        return build(index, num_frames, edge, peak)

    monkeypatch.setattr(windows, "_build", counting)
    return built


def test_a_finished_window_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = noise(400 * 1600)
    windows = new(SMALL, 100)
    windows.append(samples[:1600])
    built = count_builds(windows, monkeypatch)
    for start in range(1600, len(samples), 1600):
        windows.append(samples[start : start + 1600])
        windows.items()
    # Its bands span less than 8 decades, so no peak reaches it: ten updates a window, one to finish it.
    assert len(built) <= 399 + 40


def test_a_shout_changes_quiet_windows_and_no_others() -> None:
    loud, quiet = noise(16_000, 0.3), noise(16_000, 1e-5, seed=1)
    windows = new(SMALL, 100)
    windows.append(np.concatenate((quiet, loud, loud, quiet)) * np.float32(0.01))
    before = windows.items()
    assert len(before) == 4
    windows.append(loud)
    changed = [one != other for one, other in zip_longest(before, windows.items())]
    assert changed == [True, False, False, True, True]


def test_memory_is_the_raw_energies() -> None:
    windows = new()
    for second in range(60):
        windows.append(noise(16_000, seed=second))
        windows.items()
    assert sum(raw.nbytes for raw in windows._raw) <= 8 * 128 * 800 * 4
    assert len(windows._source._tail) < 2 * 400


def test_config_of_a_saved_extractor(tmp_path: Path) -> None:
    Qwen3ASRFeatureExtractor().save_pretrained(tmp_path)
    assert FeatureConfig.from_folder(tmp_path, EXTRACTORS) == CONFIG
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"feature_extractor_type": "Qwen3ASRFeatureExtractor"})
    )
    assert FeatureConfig.from_folder(tmp_path, EXTRACTORS) == CONFIG


@pytest.mark.parametrize("length", [0, 200, "8000"])
def test_a_length_too_short_to_reflect_is_refused(tmp_path: Path, length: object) -> None:
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({"feature_extractor_type": "Qwen3ASRFeatureExtractor", "min_length": length}))
    with pytest.raises(ModelLoadError, match="min_length"):
        FeatureConfig.from_folder(tmp_path, EXTRACTORS)
