"""Features of NeMo's models: `transformers`' numbers, the same bits however the audio is cut."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.audio.nemo_features import (
    ChunkCutter,
    FloatArray,
    NemoFeatureConfig,
    NemoLogMel,
    log_mel,
    normalised,
)
from sensorium.protocols.errors import ModelLoadError
from support.transducing import noise
from transformers import NemotronAsrStreamingFeatureExtractor, ParakeetFeatureExtractor

EXTRACTORS = {"NemotronAsrStreamingFeatureExtractor": 80}


def in_float64(samples: FloatArray, extractor: NemotronAsrStreamingFeatureExtractor) -> FloatArray:
    """The extractor's steps without its rounding, which is up to 2e-4 in quiet bands."""
    y = torch.from_numpy(samples).double()
    y = torch.cat([y[:1], y[1:] - 0.97 * y[:-1]])
    window = torch.hann_window(400, periodic=False, dtype=torch.float64)
    spectrum = torch.stft(
        y, 512, hop_length=160, win_length=400, window=window, return_complex=True, pad_mode="constant"
    )
    energies = extractor.mel_filters.double() @ spectrum.abs().square()
    found: FloatArray = torch.log(energies + 2**-24)[:, : len(samples) // 160].numpy()
    return found


@pytest.mark.parametrize("num_mel_bins", [80, 128])
@pytest.mark.parametrize("num_samples", [160, 379, 380, 1000, 16_000, 50_123])
def test_frames_are_the_extractors(num_mel_bins: int, num_samples: int) -> None:
    samples = noise(num_samples / 16_000, seed=num_samples)
    extractor = NemotronAsrStreamingFeatureExtractor(feature_size=num_mel_bins)
    given = extractor(samples, sampling_rate=16_000, return_tensors="pt")
    num_valid = int(given["attention_mask"].sum())
    expected = given["input_features"][0, :num_valid].numpy().T
    found = log_mel(samples, NemoFeatureConfig(num_mel_bins))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    np.testing.assert_allclose(found, in_float64(samples, extractor), atol=1e-5)


def test_normalised_frames_are_parakeets() -> None:
    samples = noise(3.21)
    extractor = ParakeetFeatureExtractor(feature_size=80)
    given = extractor(samples, sampling_rate=16_000, return_tensors="pt")
    num_valid = int(given["attention_mask"].sum())
    expected = given["input_features"][0, :num_valid].numpy().T
    np.testing.assert_allclose(normalised(log_mel(samples, NemoFeatureConfig())), expected, atol=1e-3)


def test_a_single_frame_normalised_is_zeros() -> None:
    assert not normalised(log_mel(noise(0.015), NemoFeatureConfig())).any()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=8), st.integers(0, 5))
def test_frames_do_not_depend_on_the_cuts(sizes: list[int], seed: int) -> None:
    """And each is given as soon as its window is full."""
    samples = noise(sum(sizes) / 16_000 + 1e-9, seed)[: sum(sizes)]
    stream = NemoLogMel(NemoFeatureConfig())
    parts, first = [], 0
    for size in sizes:
        parts.append(stream.append(samples[first : first + size]))
        first += size
        assert stream.num_frames == (0 if first < 200 else min((first - 200) // 160 + 1, first // 160))
    parts.append(stream.finish())
    joined = np.concatenate(parts, axis=1)
    assert joined.shape[1] == len(samples) // 160
    assert joined.tobytes() == log_mel(samples, NemoFeatureConfig()).tobytes()


@given(st.lists(st.integers(0, 40), max_size=12))
def test_chunks_are_cut_of_any_pieces(sizes: list[int]) -> None:
    frames = np.arange(2 * sum(sizes), dtype=np.float32).reshape(2, -1)
    cutter, chunks, first = ChunkCutter(2, first=9, rest=16), [], 0
    for size in sizes:
        chunks += cutter.append(frames[:, first : first + size])
        first += size
    assert [each.shape[1] for each in chunks] == [9, *(16,) * len(chunks)][: len(chunks)]
    assert cutter.remainder.shape[1] < (16 if chunks else 9)
    assert np.array_equal(np.concatenate((*chunks, cutter.remainder), axis=1), frames)


def written(folder: Path, **fields: object) -> Path:
    """A folder with such a config of the extractor."""
    values = {"feature_extractor_type": "NemotronAsrStreamingFeatureExtractor", "feature_size": 128}
    (folder / "preprocessor_config.json").write_text(json.dumps(values | fields))
    return folder


def test_the_config_is_read(tmp_path: Path) -> None:
    NemotronAsrStreamingFeatureExtractor(feature_size=128, preemphasis=0.9).save_pretrained(tmp_path)
    config = NemoFeatureConfig.from_folder(tmp_path, EXTRACTORS, num_mel_bins=128)
    assert config == NemoFeatureConfig(128, 160, 512, 400, 0.9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sampling_rate": 8000}, "sampling_rate 8000 is not supported, only 16000"),
        ({"feature_size": 80}, "feature_size is 80, and the model takes 128"),
        ({"preemphasis": 1.5}, "preemphasis is 1.5; allowed: from 0 to below 1"),
        ({"mel_filters_dtype": "bfloat16"}, "mel_filters_dtype 'bfloat16' is not supported, only 'float32'"),
        ({"win_length": 600}, "n_fft 512 and win_length 600 must be even, and win_length at most n_fft"),
        ({"feature_extractor_type": "Other"}, "'Other' is not NemotronAsrStreamingFeatureExtractor"),
    ],
)
def test_what_is_not_supported_is_refused(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        NemoFeatureConfig.from_folder(written(tmp_path, **fields), EXTRACTORS, num_mel_bins=128)
