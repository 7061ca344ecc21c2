"""Random checkpoints of the tests' CTC family."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.models.families import FamilyEntry
from sensorium.media.audio.features import FeatureConfig
from support.asr_folder import FloatArray
from support.ctc.model import STRIDE
from support.ctc.text import CHARACTERS, END, FIRST, CtcInfo
from support.features import log_mel
from transformers import WhisperFeatureExtractor

ENTRY = FamilyEntry("RandomCtc", "random_ctc", "support.ctc.model", "support.ctc.text")
"""The family's line in the registry."""
WINDOW_S = 2
NUM_MEL_BINS = 16
_HIDDEN = 24


def make_ctc_folder(path: Path, seed: int = 0) -> Path:
    """Write a checkpoint with windows of two seconds; return its path."""
    path.mkdir(parents=True)
    config = {"architectures": ["RandomCtc"], "hidden_size": _HIDDEN, "num_mel_bins": NUM_MEL_BINS}
    (path / "config.json").write_text(json.dumps(config | {"num_frames": 100 * WINDOW_S}))
    WhisperFeatureExtractor(feature_size=NUM_MEL_BINS, chunk_length=WINDOW_S).save_pretrained(path)
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        "encoder.weight": torch.randn(_HIDDEN, NUM_MEL_BINS, STRIDE, generator=generator),
        "head.weight": torch.randn(END, _HIDDEN, generator=generator),
    }
    save_file(tensors, path / "model.safetensors")
    return path


def transcript_of(folder: Path, samples: FloatArray) -> str:
    """What a checkpoint says of one window, computed by hand."""
    features = torch.from_numpy(log_mel(FeatureConfig.from_folder(folder, CtcInfo.extractors), samples))
    tensors = load_file(folder / "model.safetensors")
    hidden = torch.conv1d(features[None], tensors["encoder.weight"], stride=STRIDE, padding=1)[0].t().tanh()
    best = (hidden @ tensors["head.weight"].t()).argmax(-1).tolist()
    fresh = (after for before, after in zip([0, *best], best, strict=False) if before != after)
    return "".join(CHARACTERS[label - FIRST] for label in fresh if label >= FIRST)
