"""Granite Speech's features are its extractor's formula, computed in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sensorium.media.audio.rules.granite_speech import GraniteFeatures
from support.media_family import Sound
from transformers.audio_utils import mel_filter_bank


@pytest.mark.parametrize("seconds", [0.02, 0.4, 1.31, 2.0])
def test_rows_are_those_of_the_formula_in_float64(seconds: float) -> None:
    samples = Sound(seconds).samples
    stft = torch.stft(
        torch.from_numpy(samples).double(),
        n_fft=512,
        hop_length=160,
        win_length=400,
        window=torch.hann_window(400, dtype=torch.float64),
        center=True,
        pad_mode="reflect",
        return_complex=True,
    )
    filters = mel_filter_bank(257, 80, 0.0, 8000.0, 16_000, norm=None, mel_scale="htk")
    bands = stft.abs().square().T @ torch.from_numpy(filters).double()
    logarithms = bands.clamp(min=1e-10).log10()
    expected = torch.maximum(logarithms, logarithms.max() - 8) / 4 + 1
    expected = expected[: len(expected) // 2 * 2].reshape(-1, 160)
    np.testing.assert_allclose(GraniteFeatures().rows(samples), expected.numpy(), atol=1e-5)
