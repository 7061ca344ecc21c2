"""Log-mel features equal the Whisper extractor's; the incremental ones equal the whole ones bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.audio.features import FeatureConfig, IncrementalLogMel
from sensorium.protocols.errors import ModelLoadError
from support.features import log_mel
from transformers import WhisperFeatureExtractor

EXTRACTORS = {"WhisperFeatureExtractor": 80}
FloatArray = npt.NDArray[np.float32]
SMALL = FeatureConfig(window_samples=16_000)
"""One second: short enough to be fed one sample at a time."""


def noise(num_samples: int, scale: float = 0.1) -> FloatArray:
    return (np.random.default_rng(num_samples).standard_normal(num_samples) * scale).astype(np.float32)


def speech_like(num_samples: int) -> FloatArray:
    """Bursts of a buzzing voice with moving formants, and silence between."""
    times = np.arange(num_samples) / 16_000
    buzz = sum(np.sin(2 * np.pi * 120 * k * times) / k for k in range(1, 20))
    formant = np.sin(2 * np.pi * 900 * times * (1 + 0.1 * np.sin(3 * times)))
    return (0.1 * (buzz + formant) * (np.sin(2 * np.pi * 1.7 * times) > 0)).astype(np.float32)


def tone(num_samples: int) -> FloatArray:
    return np.sin(2 * np.pi * 440 * np.arange(num_samples) / 16_000).astype(np.float32)


SIGNALS: dict[str, Callable[[int], FloatArray]] = {
    "noise": noise,
    "speech": speech_like,
    "tone": tone,
    "silence": lambda n: np.zeros(n, np.float32),
    "near zero": lambda n: noise(n, 1e-6),
    "clipping": lambda n: np.clip(speech_like(n) * 50, -1, 1),
    "offset": lambda n: np.full(n, 0.5, np.float32),
    "impulse at the end": lambda n: np.eye(1, n, n - 1, dtype=np.float32)[0],
}


@pytest.mark.parametrize(("num_mels", "window_s"), [(80, 30), (128, 30), (80, 8)])
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("share", [1.0, 0.37])
def test_features_equal_the_extractor(num_mels: int, window_s: int, name: str, share: float) -> None:
    extractor = WhisperFeatureExtractor(feature_size=num_mels, chunk_length=window_s)
    config = FeatureConfig(num_mel_bins=num_mels, window_samples=window_s * 16_000)
    samples = SIGNALS[name](int(config.window_samples * share))
    features = log_mel(config, samples)
    assert features.dtype == np.float32
    assert features.shape == (num_mels, config.window_frames)
    # The reference in float64, as used without torch, and its torch version in float32.
    padded = np.zeros(config.window_samples, np.float32)
    padded[: len(samples)] = samples
    exact = extractor._np_extract_fbank_features(padded[None], "cpu")[0]
    np.testing.assert_allclose(features, exact, atol=1e-6)
    expected = extractor(samples, sampling_rate=16_000, return_tensors="np").input_features[0]
    np.testing.assert_allclose(features, expected, atol=1e-4)


@pytest.mark.parametrize("num_samples", [1, 2, 159, 199, 200, 201, 360, 400, 15_959, 15_960, 15_999, 16_000])
def test_short_and_full_windows_equal_the_extractor(num_samples: int) -> None:
    extractor = WhisperFeatureExtractor(chunk_length=1)
    samples = noise(num_samples)
    expected = extractor(samples, sampling_rate=16_000, return_tensors="np").input_features[0]
    np.testing.assert_allclose(log_mel(SMALL, samples), expected, atol=1e-4)


def test_nothing_yet_is_silence() -> None:
    stream = IncrementalLogMel(SMALL)
    np.testing.assert_array_equal(stream.features(), np.full((80, 100), -1.5, np.float32))
    np.testing.assert_array_equal(stream.features(), log_mel(SMALL, np.zeros(0, np.float32)))


def test_one_sample_at_a_time_equals_the_whole_at_every_step() -> None:
    samples = speech_like(16_000)
    start = 4_000
    stream = IncrementalLogMel(SMALL)
    for position in range(1200):
        stream.append(samples[start + position : start + position + 1])
        assert stream.num_samples == position + 1
        if position % 7 == 0 or position < 420:
            whole = log_mel(SMALL, samples[start : start + position + 1])
            np.testing.assert_array_equal(stream.features(), whole)


@pytest.mark.parametrize("size", [1, 159, 160, 161, 399, 1600, 15_999, 16_000])
def test_a_full_window_in_equal_chunks(size: int) -> None:
    samples = noise(16_000)
    stream = IncrementalLogMel(SMALL)
    for start in range(0, 16_000, size):
        stream.append(samples[start : start + size])
    assert stream.room() == 0
    np.testing.assert_array_equal(stream.features(), log_mel(SMALL, samples))


@settings(deadline=None, max_examples=60)
@given(sizes=st.lists(st.one_of(st.integers(0, 5), st.integers(0, 4000)), max_size=10), ask=st.booleans())
def test_any_chunking_equals_the_whole(sizes: list[int], ask: bool) -> None:
    samples = speech_like(max(16_000, sum(sizes)))
    stream = IncrementalLogMel(SMALL)
    for size in sizes:
        if size > stream.room():
            break
        stream.append(samples[stream.num_samples : stream.num_samples + size])
        if ask:
            stream.features()  # asking changes nothing
    np.testing.assert_array_equal(stream.features(), log_mel(SMALL, samples[: stream.num_samples]))


@settings(deadline=None)
@given(
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 16_000)), min_size=1, max_size=8),
    ask=st.booleans(),
)
def test_going_back_is_as_if_no_more_had_come(moves: list[tuple[bool, int]], ask: bool) -> None:
    """Also from a full window, whose last frames are known."""
    config = FeatureConfig(window_samples=16_000)
    samples = noise(config.window_samples)
    stream = IncrementalLogMel(config)
    for goes_back, place in moves:
        if goes_back and place <= stream.num_samples:
            stream.rewind(place, samples[max(0, place - stream.num_rewind_samples) : place])
        elif place > stream.num_samples:
            stream.append(samples[stream.num_samples : place])
        if ask:
            stream.features()
    whole = log_mel(config, samples[: stream.num_samples])
    assert np.array_equal(stream.features(), whole)


def test_a_later_louder_sound_lifts_the_floor_of_earlier_frames() -> None:
    quiet, loud = noise(8000, 1e-4), noise(4000, 0.5)
    stream = IncrementalLogMel(SMALL)
    stream.append(quiet)
    before = stream.features()
    stream.append(loud)
    after = stream.features()
    assert float(after[:, -1].min()) > float(before[:, -1].min())
    np.testing.assert_array_equal(after, log_mel(SMALL, np.concatenate((quiet, loud))))


def test_features_are_a_new_array_each_time() -> None:
    stream = IncrementalLogMel(SMALL)
    stream.append(noise(5000))
    first = stream.features()
    first[:] = 7.0
    np.testing.assert_array_equal(stream.features(), log_mel(SMALL, noise(5000)))


def test_more_than_the_window_is_refused_and_changes_nothing() -> None:
    stream = IncrementalLogMel(SMALL)
    stream.append(noise(15_000))
    before = stream.features()
    with pytest.raises(ValueError, match="room for 1000"):
        stream.append(noise(1001))
    assert stream.room() == 1000
    np.testing.assert_array_equal(stream.features(), before)
    with pytest.raises(ValueError, match="room for 16000"):
        log_mel(SMALL, noise(16_001))


def test_final_frames_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config = FeatureConfig(window_samples=8 * 16_000, num_mel_bins=79)
    stream = IncrementalLogMel(config)
    computed = 0
    transform = stream._source._spectrum.log_mel

    def counting(frames: npt.NDArray[np.float64]) -> FloatArray:
        nonlocal computed
        computed += len(frames)
        return transform(frames)

    monkeypatch.setattr(stream._source._spectrum, "log_mel", counting)
    samples = noise(config.window_samples)
    for start in range(0, config.window_samples, 1600):
        stream.append(samples[start : start + 1600])
    assert computed == config.window_frames
    stream.features()
    assert computed == config.window_frames
    partial = IncrementalLogMel(config)
    partial.append(samples[:64_000])
    computed = 0
    partial.features()
    assert computed <= 4


WHISPER = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 128,
    "sampling_rate": 16_000,
    "hop_length": 160,
    "chunk_length": 8,
    "n_fft": 400,
}


def write(folder: Path, name: str, value: object) -> Path:
    (folder / name).write_text(json.dumps(value))
    return folder


def test_config_is_read_from_either_file(tmp_path: Path) -> None:
    expected = FeatureConfig(num_mel_bins=128, window_samples=128_000)
    nested = write(tmp_path, "processor_config.json", {"feature_extractor": WHISPER})
    assert FeatureConfig.from_folder(nested, EXTRACTORS) == expected
    assert (expected.window_frames, expected.window_s) == (800, 8.0)
    write(tmp_path, "preprocessor_config.json", {**WHISPER, "feature_size": 80})
    assert FeatureConfig.from_folder(tmp_path, EXTRACTORS).num_mel_bins == 80


def test_config_of_a_saved_extractor(tmp_path: Path) -> None:
    WhisperFeatureExtractor(feature_size=128, chunk_length=8).save_pretrained(tmp_path)
    assert FeatureConfig.from_folder(tmp_path, EXTRACTORS) == FeatureConfig(
        num_mel_bins=128, window_samples=128_000
    )


def test_fields_left_out_are_those_of_the_reference(tmp_path: Path) -> None:
    assert (
        FeatureConfig.from_folder(write(tmp_path, "preprocessor_config.json", {}), EXTRACTORS)
        == FeatureConfig()
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hop_length": 0}, "hop_length"),
        ({"feature_size": "80"}, "feature_size"),
        ({"chunk_length": 30.5}, "chunk_length"),
        ({"sampling_rate": True}, "sampling_rate"),
        ({"sampling_rate": 8_000}, "sampling_rate 8000 is not supported, only 16000"),
        ({"n_fft": 401}, "n_fft"),
        ({"dither": 0.1}, "dither"),
        ({"feature_extractor_type": "SeamlessM4TFeatureExtractor"}, "feature_extractor_type"),
    ],
)
def test_a_bad_field_is_named_with_its_file(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    write(tmp_path, "preprocessor_config.json", {**WHISPER, **changes})
    with pytest.raises(ModelLoadError, match=rf"preprocessor_config\.json: {named}"):
        FeatureConfig.from_folder(tmp_path, EXTRACTORS)


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"no preprocessor_config\.json"):
        FeatureConfig.from_folder(tmp_path, EXTRACTORS)
    write(tmp_path, "processor_config.json", {"processor_class": "WhisperProcessor"})
    with pytest.raises(ModelLoadError, match=r"no preprocessor_config\.json"):
        FeatureConfig.from_folder(tmp_path, EXTRACTORS)
    write(tmp_path, "preprocessor_config.json", [1])
    with pytest.raises(ModelLoadError, match=r"preprocessor_config\.json: not a JSON object"):
        FeatureConfig.from_folder(tmp_path, EXTRACTORS)
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(ModelLoadError, match=r"preprocessor_config\.json: not readable JSON"):
        FeatureConfig.from_folder(tmp_path, EXTRACTORS)
