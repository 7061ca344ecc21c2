"""Log-mel features of a whole recording as Phi-4 multimodal takes them: a row for each 10 ms.

Windows of 25 ms begin at the first sample, each is emphasised by itself, and what is left behind the last
whole one is dropped. The triangles are Kaldi's. The same as `transformers`' `Phi4MultimodalFeatureExtractor`.
An audio rule (`engine/models/prompts.py: AudioClips`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ....protocols.errors import ModelLoadError
from ....protocols.shared.audio_format import INTERNAL_RATE
from ...hashing import encoder_item
from ..features import FloatArray, extractor_values, positive_int
from ..mel import Float64Array, SparseFilters, kaldi_filters

EXTRACTORS: Final[Mapping[str, int]] = {"Phi4MultimodalFeatureExtractor": 80}
_DEFAULTS: Final = {
    "feature_size": 80,
    "sampling_rate": INTERNAL_RATE,
    "hop_length": 160,
    "n_fft": 512,
    "win_length": 400,
}
_EDGES_HZ: Final = {"mel_min_frequency": 0.0, "mel_max_frequency": 7690.0}
_EMPHASIS: Final = 0.97
_SCALE: Final = 32768.0
"""Samples are those of 16 bits to the formula."""
_FLOOR: Final = 1.0
_BLOCK_FRAMES: Final = 128
"""Frames transformed at once: their float64 samples and spectra stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Phi4Features:
    """The extractor's numbers, from the checkpoint."""

    num_mel_bins: int = 80
    hop_length: int = 160
    n_fft: int = 512
    win_length: int = 400
    emphasis: float = _EMPHASIS
    min_hz: float = _EDGES_HZ["mel_min_frequency"]
    max_hz: float = _EDGES_HZ["mel_max_frequency"]

    def rows(self, samples: FloatArray) -> FloatArray:
        """Features [rows, mel bins] of samples [n]; less than a window is filled up with silence."""
        padded = np.pad(samples, (0, max(0, self.win_length - len(samples)))).astype(np.float64)
        frames = np.lib.stride_tricks.sliding_window_view(padded, self.win_length)[:: self.hop_length]
        window, filters = _transform(self)
        bands = np.empty((len(frames), self.num_mel_bins))
        for start in range(0, len(frames), _BLOCK_FRAMES):
            block = frames[start : start + _BLOCK_FRAMES]
            before = np.concatenate((block[:, :1], block[:, :-1]), axis=1)
            spectrum = np.fft.rfft((block - self.emphasis * before) * window, n=self.n_fft)
            bands[start : start + _BLOCK_FRAMES] = filters.apply(
                np.square(spectrum.real) + np.square(spectrum.imag)
            )
        rows: FloatArray = np.log(np.maximum(bands, _FLOOR)).astype(np.float32)
        return rows

    def items(self, samples: FloatArray, num_tokens: Callable[[int], int]) -> tuple[EncoderItem, ...]:
        """The one item of a recording; `num_tokens` says what so many rows become."""
        rows = self.rows(samples)
        return (encoder_item(rows, num_tokens=num_tokens(len(rows))),)


def open_rule(folder: Path) -> Phi4Features:
    """Read the extractor's file. Raises ModelLoadError naming it and the field at fault."""
    path, _, values = extractor_values(folder, EXTRACTORS)
    numbers = {name: positive_int(path, name, values.get(name, found)) for name, found in _DEFAULTS.items()}
    if numbers["sampling_rate"] != INTERNAL_RATE:
        raise ModelLoadError(
            f"{path}: sampling_rate {numbers['sampling_rate']} is not supported, only {INTERNAL_RATE}"
        )
    if numbers["win_length"] > numbers["n_fft"]:
        raise ModelLoadError(f"{path}: n_fft {numbers['n_fft']} must be at least win_length")
    edges = {name: _number(path, name, values.get(name, found)) for name, found in _EDGES_HZ.items()}
    if not edges["mel_min_frequency"] < edges["mel_max_frequency"]:
        raise ModelLoadError(f"{path}: mel_max_frequency must be above mel_min_frequency")
    return Phi4Features(
        numbers["feature_size"],
        numbers["hop_length"],
        numbers["n_fft"],
        numbers["win_length"],
        _number(path, "preemphasis", values.get("preemphasis", _EMPHASIS)),
        edges["mel_min_frequency"],
        edges["mel_max_frequency"],
    )


def _number(path: Path, name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise ModelLoadError(f"{path}: {name} is {value!r}; allowed: a number of at least 0")
    return float(value)


@lru_cache(maxsize=8)
def _transform(features: Phi4Features) -> tuple[Float64Array, SparseFilters]:
    filters = kaldi_filters(
        num_bins=features.n_fft // 2 + 1,
        num_mels=features.num_mel_bins,
        sampling_rate=INTERNAL_RATE,
        min_hz=features.min_hz,
        max_hz=features.max_hz,
    )
    return _SCALE * np.hamming(features.win_length), SparseFilters(filters)
