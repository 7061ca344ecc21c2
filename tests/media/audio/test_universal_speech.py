"""Features of Gemma 3n and Gemma 4 are those of their extractors, without the rows of padding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sensorium.media.audio.audio_rule import open_audio_rule
from sensorium.protocols.errors import ModelLoadError
from support.media_family import Sound, values
from transformers import Gemma3nAudioFeatureExtractor, Gemma4AudioFeatureExtractor

RULE = ".rules.universal_speech"
EXTRACTORS = (Gemma3nAudioFeatureExtractor, Gemma4AudioFeatureExtractor)


def write(folder: Path, values: dict[str, Any]) -> Path:
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize("extractor", EXTRACTORS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"feature_size": 12, "preemphasis": 0.5, "preemphasis_htk_flavor": False, "input_scale_factor": 2.0},
        {
            "feature_size": 3,
            "frame_length_ms": 25.0,
            "min_frequency": 60.0,
            "max_frequency": 4000.0,
            "fft_overdrive": True,
            "per_bin_mean": [0.5, -1.0, 2.0],
            "per_bin_stddev": [1.5, 2.0, 0.5],
        },
    ],
)
@pytest.mark.parametrize("seconds", [0.9, 1.31])
def test_rows_are_those_of_the_extractor(
    tmp_path: Path,
    extractor: Any,  # noqa: ANN401 (of transformers)
    options: dict[str, Any],
    seconds: float,
) -> None:
    samples = Sound(seconds).samples
    reference = extractor(**options)
    found = reference([samples], return_tensors="np")
    expected = found["input_features"][0][found["input_features_mask"][0].astype(bool)]
    folder = write(tmp_path, {**options, "feature_extractor_type": extractor.__name__})
    (item,) = open_audio_rule(RULE, folder).items(samples, lambda rows: rows)
    assert item.num_tokens == len(expected)
    np.testing.assert_allclose(values(item).numpy(), expected, atol=2e-4)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_the_shortest_sound_has_a_row(tmp_path: Path, extractor: Any) -> None:  # noqa: ANN401
    folder = write(tmp_path, {"feature_extractor_type": extractor.__name__})
    (item,) = open_audio_rule(RULE, folder).items(np.ones(1, np.float32), lambda rows: rows)
    assert item.num_tokens == 1
    assert np.isfinite(values(item).numpy()).all()


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("sampling_rate", 8000, "only 16000"),
        ("preemphasis", "much", "a number, at least 0"),
        ("max_frequency", 9000.0, "up to 8000"),
        ("per_bin_mean", [1.0], "a list of 128 numbers"),
        ("hop_length_ms", 0.0, "at least 0.1"),
    ],
)
def test_what_cannot_be_is_refused_by_field(tmp_path: Path, field: str, value: Any, allowed: str) -> None:  # noqa: ANN401
    folder = write(tmp_path, {field: value, "feature_extractor_type": "Gemma4AudioFeatureExtractor"})
    with pytest.raises(ModelLoadError, match=rf"preprocessor_config\.json: .*{field}.*{allowed}"):
        open_audio_rule(RULE, folder)
