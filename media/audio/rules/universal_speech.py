"""Log-mel features of a whole recording as Gemma 3n and Gemma 4 take them, whose encoders are Universal
Speech Models: magnitudes of frames every 10 ms on HTK's scale, natural logarithms, a row for each frame.

The same as `transformers`' `Gemma3nAudioFeatureExtractor` and `Gemma4AudioFeatureExtractor` for one
recording, without the rows that they mark as padding. An audio rule (`engine/models/prompts.py: AudioClips`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from ....protocols.engine.messages import EncoderItem
from ....protocols.errors import ModelLoadError
from ....protocols.shared.audio_format import INTERNAL_RATE
from ...hashing import encoder_item
from ..features import FloatArray, extractor_values, positive_int
from ..mel import Float64Array, SparseFilters, htk_filters

_GEMMA_3N: Final = "Gemma3nAudioFeatureExtractor"
_GEMMA_4: Final = "Gemma4AudioFeatureExtractor"
_EXTRACTORS: Final[Mapping[str, int]] = {_GEMMA_4: 128, _GEMMA_3N: 128}
_DEFAULTS: Final[Mapping[str, Mapping[str, float]]] = {
    _GEMMA_3N: {
        "frame_length_ms": 32.0,
        "hop_length_ms": 10.0,
        "min_frequency": 125.0,
        "max_frequency": 7600.0,
        "preemphasis": 0.97,
        "mel_floor": 1e-5,
        "input_scale_factor": 1.0,
    },
    _GEMMA_4: {
        "frame_length_ms": 20.0,
        "hop_length_ms": 10.0,
        "min_frequency": 0.0,
        "max_frequency": 8000.0,
        "preemphasis": 0.0,
        "mel_floor": 1e-3,
        "input_scale_factor": 1.0,
    },
}
_MULTIPLE: Final = 128
"""Samples: Gemma 3n's recordings are filled up to a multiple of it."""
_BLOCK_FRAMES: Final = 128
"""Frames transformed at once: their float64 samples and spectra stay in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniversalSpeechFeatures:
    """The extractor's numbers, from the checkpoint."""

    num_mel_bins: int
    frame_length: int
    """Samples."""
    hop_length: int
    fft_length: int
    min_hz: float
    max_hz: float
    preemphasis: float
    is_htk: bool
    """The first sample of a frame is emphasised by itself, not by the one in front of it."""
    scale: float
    floor: float
    """Of magnitudes."""
    is_centred: bool
    """The first frame begins half a frame in front of the recording, and the floor is added. Otherwise it
    begins with the recording, which is filled up, and the floor is the least."""
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()
    """Of each band, by which logarithms are normalised; none: they are not."""

    def rows(self, samples: FloatArray) -> FloatArray:
        """Features [frames, mel bins] of samples [n], at least one frame."""
        length, hop = self.frame_length, self.hop_length
        left = length // 2 if self.is_centred else 0
        right = 0 if self.is_centred else -len(samples) % _MULTIPLE
        right = max(right, length + 1 - left - len(samples))  # for one frame
        padded = np.pad(samples.astype(np.float64) * self.scale, (left, right))
        frames = np.lib.stride_tricks.sliding_window_view(padded, length + 1)[::hop]
        window, filters = _transform(self)
        bands = np.empty((len(frames), self.num_mel_bins))
        for start in range(0, len(frames), _BLOCK_FRAMES):
            part = self._emphasised(frames[start : start + _BLOCK_FRAMES])
            bands[start : start + _BLOCK_FRAMES] = filters.apply(
                np.abs(np.fft.rfft(part * window, self.fft_length))
            )
        logarithms = np.log(bands + self.floor if self.is_centred else np.maximum(bands, self.floor))
        if self.means:
            logarithms -= self.means
        if self.deviations:
            logarithms /= self.deviations
        rows: FloatArray = logarithms.astype(np.float32)
        return rows

    def items(self, samples: FloatArray, num_tokens: Callable[[int], int]) -> tuple[EncoderItem, ...]:
        """The one item of a recording; `num_tokens` says what so many rows become."""
        rows = self.rows(samples)
        return (encoder_item(rows, num_tokens=num_tokens(len(rows))),)

    def _emphasised(self, frames: Float64Array) -> Float64Array:
        """[frames, frame_length] of frames with one more sample."""
        if not self.preemphasis:
            return frames[:, :-1]
        if not self.is_htk:
            return frames[:, 1:] - self.preemphasis * frames[:, :-1]
        first = frames[:, :1] * (1.0 - self.preemphasis)
        return np.concatenate([first, frames[:, 1:-1] - self.preemphasis * frames[:, :-2]], axis=1)


def open_rule(folder: Path) -> UniversalSpeechFeatures:
    """Read the extractor's file. Raises ModelLoadError naming it and the field at fault."""
    path, kind, values = extractor_values(folder, _EXTRACTORS)
    numbers = {name: _number(path, values, name, default) for name, default in _DEFAULTS[kind].items()}
    rate = positive_int(path, "sampling_rate", values.get("sampling_rate", INTERNAL_RATE))
    if rate != INTERNAL_RATE:
        raise ModelLoadError(f"{path}: sampling_rate {rate} is not supported, only {INTERNAL_RATE}")
    bins = positive_int(path, "feature_size", values.get("feature_size", _EXTRACTORS[kind]))
    frame_length, hop_length = (
        round(INTERNAL_RATE * numbers[name] / 1000) for name in ("frame_length_ms", "hop_length_ms")
    )
    if frame_length < 2 or hop_length < 1:
        raise ModelLoadError(
            f"{path}: frame_length_ms and hop_length_ms are too small; allowed: at least 0.1"
        )
    if not 0 <= numbers["min_frequency"] < numbers["max_frequency"] <= INTERNAL_RATE / 2:
        raise ModelLoadError(
            f"{path}: max_frequency is {numbers['max_frequency']}; allowed: above min_frequency, which is "
            f"{numbers['min_frequency']}, up to {INTERNAL_RATE / 2}"
        )
    overdrive = values.get("fft_overdrive", kind == _GEMMA_3N)
    return UniversalSpeechFeatures(
        num_mel_bins=bins,
        frame_length=frame_length,
        hop_length=hop_length,
        fft_length=2 ** math.ceil(math.log2(frame_length)) * (2 if overdrive else 1),
        min_hz=numbers["min_frequency"],
        max_hz=numbers["max_frequency"],
        preemphasis=numbers["preemphasis"],
        is_htk=bool(values.get("preemphasis_htk_flavor", True)),
        scale=numbers["input_scale_factor"],
        floor=numbers["mel_floor"],
        is_centred=kind == _GEMMA_4,
        means=_of_bands(path, values, "per_bin_mean", bins),
        deviations=_of_bands(path, values, "per_bin_stddev", bins),
    )


def _number(path: Path, values: Mapping[str, Any], name: str, default: float) -> float:
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ModelLoadError(f"{path}: {name} is {value!r}; allowed: a number, at least 0")
    return float(value)


def _of_bands(path: Path, values: Mapping[str, Any], name: str, bins: int) -> tuple[float, ...]:
    value = values.get(name)
    if value is None:
        return ()
    if (
        not isinstance(value, list)
        or len(value) != bins
        or not all(type(each) in (int, float) for each in value)
    ):
        raise ModelLoadError(f"{path}: {name} must be a list of {bins} numbers, one for each mel bin")
    return tuple(map(float, value))


@lru_cache(maxsize=8)
def _transform(features: UniversalSpeechFeatures) -> tuple[Float64Array, SparseFilters]:
    window = np.hanning(features.frame_length + 1)[:-1]  # periodic
    filters = htk_filters(
        num_bins=features.fft_length // 2 + 1,
        num_mels=features.num_mel_bins,
        sampling_rate=INTERNAL_RATE,
        min_hz=features.min_hz,
        max_hz=features.max_hz,
    )
    return window, SparseFilters(filters)
