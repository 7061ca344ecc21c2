"""Phi-4 multimodal's features are those of its extractor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sensorium.media.audio.rules.phi4_multimodal import Phi4Features, open_rule
from sensorium.protocols.errors import ModelLoadError
from support.media_family import Sound
from transformers import Phi4MultimodalFeatureExtractor


@pytest.mark.parametrize("seconds", [0.025, 0.4, 1.31, 3.0])
def test_rows_are_those_of_the_extractor(seconds: float) -> None:
    samples = Sound(seconds).samples
    expected = Phi4MultimodalFeatureExtractor()(samples, sampling_rate=16_000, return_tensors="np")
    rows = Phi4Features().rows(samples)
    np.testing.assert_allclose(rows, expected["audio_input_features"][0], atol=2e-4)
    (item,) = Phi4Features().items(samples, lambda length: -(-length // 8))
    assert item.num_tokens == int(expected["audio_embed_sizes"][0])


def test_less_than_a_window_is_filled_up_with_silence() -> None:
    samples = Sound(0.01).samples
    filled = np.pad(samples, (0, 400 - len(samples)))
    np.testing.assert_array_equal(Phi4Features().rows(samples), Phi4Features().rows(filled))


def test_numbers_come_from_the_folder(tmp_path: Path) -> None:
    values = {"feature_extractor_type": "Phi4MultimodalFeatureExtractor", "feature_size": 16}
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({**values, "mel_max_frequency": 7000.0}))
    assert open_rule(tmp_path) == Phi4Features(num_mel_bins=16, max_hz=7000.0)
    for field, value in (("sampling_rate", 8000), ("win_length", 1024), ("mel_max_frequency", -1)):
        path.write_text(json.dumps({**values, field: value}))
        with pytest.raises(ModelLoadError, match=field):
            open_rule(tmp_path)
