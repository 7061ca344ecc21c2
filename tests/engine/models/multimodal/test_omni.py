"""Models that take pictures and sound in one prompt answer as `generate` does, and their features are those
of `transformers`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sensorium.media.audio.encoder_windows import windows_of
from sensorium.media.audio.features import FeatureConfig
from support.exactness import check_every_way
from support.media_checkpoints import Checkpoint
from support.media_family import Family, Sound, values
from support.omni_families import OMNI_FAMILIES, make_omni_folder
from transformers import WhisperFeatureExtractor


@pytest.mark.parametrize("family", OMNI_FAMILIES, ids=[family.model_type for family in OMNI_FAMILIES])
@torch.inference_mode()
def test_pictures_beside_sound_are_answered_as_transformers_does(tmp_path: Path, family: Family) -> None:
    checkpoint = Checkpoint(make_omni_folder(tmp_path, family), family)
    cases = [
        checkpoint.case("What does the quick brown fox do over the lazy dog?"),
        checkpoint.case((40, 56, 1), "What is in the picture?"),
        checkpoint.case(Sound(1.31, 1), "What is to be heard?"),
        checkpoint.case(Sound(1.1, 1), "What is behind its last whole second?"),
        checkpoint.case(
            *("First:", Sound(1.93, 2), (70, 36, 2), "then:", (33, 33, 3), Sound(0.57, 3)),
            "What is the difference?",
        ),
    ]
    other = checkpoint.case(Sound(1.31, 4), "What is to be heard?")
    assert other.prompt == cases[2].prompt
    assert other.expected != cases[2].expected
    check_every_way(checkpoint.model, [*cases, other], seed=0)


@pytest.mark.parametrize("seconds", [0.31, 1.0, 2.995])
def test_trimmed_windows_are_the_frames_of_the_extractor_that_are_audio(seconds: float) -> None:
    extractor = WhisperFeatureExtractor(feature_size=16, chunk_length=3)
    samples = Sound(seconds).samples
    expected = extractor(samples, sampling_rate=16_000, return_attention_mask=True, return_tensors="np")
    num_frames = int(expected["attention_mask"].sum())
    config = FeatureConfig(num_mel_bins=16, window_samples=48_000)
    items = windows_of(
        samples, config, window_frames=40, num_tokens=lambda frames: frames // 4, cut="trimmed"
    )
    found = np.concatenate([values(item).numpy() for item in items], axis=1)
    dropped = num_frames - found.shape[1]
    assert 0 <= dropped < 4
    np.testing.assert_allclose(found, expected["input_features"][0, :, : found.shape[1]], atol=1e-4)
