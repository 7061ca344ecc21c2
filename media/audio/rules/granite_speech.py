"""Log-mel features of a whole recording as Granite Speech takes them: two frames of 10 ms in each row.

Windows of 25 ms lie in the middle of an FFT of 32 ms, audio is reflected at both ends, and the triangles on
HTK's scale are not normalised. Logarithms are clamped at (maximum - 8) of the recording, as Whisper's are.
The same as `transformers`' `GraniteSpeechFeatureExtractor`, which needs torchaudio for it. An audio rule
(`engine/models/prompts.py: AudioClips`).
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
from ..features import DYNAMIC_RANGE, MAX_HZ, FloatArray, extractor_values, positive_int
from ..mel import Float64Array, SparseFilters, htk_filters

EXTRACTORS: Final[Mapping[str, int]] = {"GraniteSpeechFeatureExtractor": 80}
_DEFAULTS: Final = {"sampling_rate": INTERNAL_RATE, "hop_length": 160, "n_fft": 512, "win_length": 400}
_FLOOR: Final = 1e-10
_BLOCK_FRAMES: Final = 128
"""Frames transformed at once: their float64 samples and spectra stay in the processor's cache."""
_STACKED: Final = 2
"""Frames in a row."""


@dataclass(frozen=True, slots=True)
class GraniteFeatures:
    """The extractor's numbers, from the checkpoint."""

    num_mel_bins: int = 80
    hop_length: int = 160
    n_fft: int = 512
    win_length: int = 400

    def rows(self, samples: FloatArray) -> FloatArray:
        """Features [rows, 2 * mel bins] of samples [n]; what is too short to be reflected is filled up."""
        half, hop = self.n_fft // 2, self.hop_length
        padded = np.pad(samples, (0, max(0, half + 1 - len(samples)))).astype(np.float64)
        num_frames = len(padded) // hop + 1
        padded = np.pad(padded, half, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, self.n_fft)[::hop]
        window, filters = _transform(self)
        bands = np.empty((num_frames, self.num_mel_bins))
        for start in range(0, num_frames, _BLOCK_FRAMES):
            spectrum = np.fft.rfft(frames[start : start + _BLOCK_FRAMES] * window)
            bands[start : start + _BLOCK_FRAMES] = filters.apply(
                np.square(spectrum.real) + np.square(spectrum.imag)
            )
        logarithms = np.log10(np.maximum(bands, _FLOOR))
        logarithms = np.maximum(logarithms, logarithms.max() - DYNAMIC_RANGE) / 4 + 1
        whole = num_frames - num_frames % _STACKED
        rows: FloatArray = logarithms[:whole].reshape(-1, _STACKED * self.num_mel_bins).astype(np.float32)
        return rows

    def items(self, samples: FloatArray, num_tokens: Callable[[int], int]) -> tuple[EncoderItem, ...]:
        """The one item of a recording; `num_tokens` says what so many rows become."""
        rows = self.rows(samples)
        return (encoder_item(rows, num_tokens=num_tokens(len(rows))),)


def open_rule(folder: Path) -> GraniteFeatures:
    """Read the extractor's file. Raises ModelLoadError naming it and the field at fault."""
    path, kind, values = extractor_values(folder, EXTRACTORS)
    own = values.get("melspec_kwargs")
    values = values | (own if isinstance(own, dict) else {})
    numbers = {name: positive_int(path, name, values.get(name, found)) for name, found in _DEFAULTS.items()}
    bins = next((values[name] for name in ("feature_size", "n_mels") if values.get(name)), EXTRACTORS[kind])
    if numbers["sampling_rate"] != INTERNAL_RATE:
        raise ModelLoadError(
            f"{path}: sampling_rate {numbers['sampling_rate']} is not supported, only {INTERNAL_RATE}"
        )
    if numbers["win_length"] > numbers["n_fft"] or numbers["n_fft"] % 2:
        raise ModelLoadError(f"{path}: n_fft {numbers['n_fft']} must be even and at least win_length")
    return GraniteFeatures(
        positive_int(path, "feature_size", bins),
        numbers["hop_length"],
        numbers["n_fft"],
        numbers["win_length"],
    )


@lru_cache(maxsize=8)
def _transform(features: GraniteFeatures) -> tuple[Float64Array, SparseFilters]:
    left = (features.n_fft - features.win_length) // 2
    right = features.n_fft - features.win_length - left
    window = np.pad(np.hanning(features.win_length + 1)[:-1], (left, right))  # periodic
    filters = htk_filters(
        num_bins=features.n_fft // 2 + 1,
        num_mels=features.num_mel_bins,
        sampling_rate=INTERNAL_RATE,
        max_hz=MAX_HZ,
    )
    return window, SparseFilters(filters)
