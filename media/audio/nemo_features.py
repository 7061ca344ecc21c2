"""Log-mel features as NeMo's speech models take them (Nemotron, Parakeet), while audio arrives or of a whole.

Samples pass a preemphasis filter, frames are centred on every 10 ms with zeros beyond both ends, and the
logarithm is natural, of the energy plus 2⁻²⁴. A frame is computed once no later sample can change it, and
only frames whose 10 ms have been recorded in full count. `NemoLogMel` gives frames, `ChunkCutter` those of a
streaming model's own chunks. Equal to `transformers`' `NemotronAsrStreamingFeatureExtractor` and, with
`normalised`, `ParakeetFeatureExtractor`. Read `media/audio/mel.py` for the filter bank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ...protocols.errors import ModelLoadError
from ...protocols.shared.audio_format import INTERNAL_RATE
from .features import extractor_values, positive_int
from .mel import Float64Array, SparseFilters, mel_filters

FloatArray = npt.NDArray[np.float32]

_GUARD: Final = 2.0**-24
"""Added to every band's energy: its logarithm is what silence looks like."""
_BLOCK_FRAMES: Final = 128
"""Frames transformed at once: their float64 samples and spectra stay in the processor's cache."""
_LEAST_DEVIATION: Final = 1e-5
"""Added to a band's standard deviation."""
_DEFAULTS: Final = {"sampling_rate": INTERNAL_RATE, "hop_length": 160, "n_fft": 512, "win_length": 400}


@dataclass(frozen=True, slots=True)
class NemoFeatureConfig:
    """The extractor's numbers, from the checkpoint."""

    num_mel_bins: int = 80
    hop_length: int = 160
    n_fft: int = 512
    win_length: int = 400
    preemphasis: float = 0.97

    @classmethod
    def from_folder(
        cls, folder: str | Path, extractors: Mapping[str, int], *, num_mel_bins: int
    ) -> NemoFeatureConfig:
        """Read a model folder's preprocessor_config.json, or processor_config.json with a nested extractor.

        `extractors` are the family's, with the mel bins that each assumes; `num_mel_bins` is what the model
        takes. Raises ModelLoadError naming the file and the field at fault.
        """
        path, kind, values = extractor_values(Path(folder), extractors)
        defaults = {"feature_size": extractors[kind], **_DEFAULTS}
        numbers = {name: positive_int(path, name, values.get(name, defaults[name])) for name in defaults}
        if numbers["sampling_rate"] != INTERNAL_RATE:
            raise ModelLoadError(
                f"{path}: sampling_rate {numbers['sampling_rate']} is not supported, only {INTERNAL_RATE}"
            )
        if numbers["feature_size"] != num_mel_bins:
            raise ModelLoadError(
                f"{path}: feature_size is {numbers['feature_size']}, and the model takes {num_mel_bins}"
            )
        preemphasis = values.get("preemphasis", 0.97)
        preemphasis = 0.0 if preemphasis is None else preemphasis
        if type(preemphasis) not in (int, float) or not 0 <= preemphasis < 1:
            raise ModelLoadError(f"{path}: preemphasis is {preemphasis!r}; allowed: from 0 to below 1")
        if values.get("mel_filters_dtype", "float32") != "float32":
            raise ModelLoadError(
                f"{path}: mel_filters_dtype {values['mel_filters_dtype']!r} is not supported, only 'float32'"
            )
        config = cls(
            num_mel_bins, numbers["hop_length"], numbers["n_fft"], numbers["win_length"], float(preemphasis)
        )
        if config.n_fft % 2 or config.win_length % 2 or not config.win_length <= config.n_fft:
            raise ModelLoadError(
                f"{path}: n_fft {config.n_fft} and win_length {config.win_length} must be even, and "
                "win_length at most n_fft"
            )
        return config

    def num_frames(self, num_samples: int) -> int:
        """Frames of so many samples."""
        return num_samples // self.hop_length


class _Spectrum:
    """Frames of filtered samples → log energies, row by row independent of each other."""

    def __init__(self, config: NemoFeatureConfig) -> None:
        self._num_fft = config.n_fft
        self._hann: Float64Array = np.hanning(config.win_length)  # symmetric
        filters = mel_filters(
            num_bins=config.n_fft // 2 + 1,
            num_mels=config.num_mel_bins,
            sampling_rate=INTERNAL_RATE,
            max_hz=INTERNAL_RATE / 2,
        )
        self._filters = SparseFilters(filters)

    def log_mel(self, frames: Float64Array) -> FloatArray:
        """Natural logarithms [mels, k] of the energies of frames [k, win_length].

        Where the window lies within the transform shifts phases only.
        """
        spectrum = np.fft.rfft(frames * self._hann, self._num_fft)
        bands = self._filters.apply(np.square(spectrum.real) + np.square(spectrum.imag))
        return np.log(bands + _GUARD).T.astype(np.float32)


@lru_cache(maxsize=8)
def _spectrum(config: NemoFeatureConfig) -> _Spectrum:
    return _Spectrum(config)


class NemoLogMel:
    """The frames of audio that grows, the same bit for bit however it is cut. Holds one window of samples."""

    def __init__(self, config: NemoFeatureConfig) -> None:
        self.config = config
        self.num_samples = 0
        self.num_frames = 0
        """Frames given so far."""
        self._spectrum = _spectrum(config)
        self._half = config.win_length // 2
        self._tail: Float64Array = np.zeros(self._half)  # filtered; in front of the first sample are zeros
        self._last = 0.0

    def append(self, samples: FloatArray) -> FloatArray:
        """Add samples [n]; the frames [num_mel_bins, k] that became final."""
        given = np.asarray(samples, dtype=np.float32).astype(np.float64)
        if not len(given):
            return np.empty((self.config.num_mel_bins, 0), np.float32)
        before = np.concatenate(([self._last], given[:-1]))
        self._tail = np.concatenate((self._tail, given - self.config.preemphasis * before))
        self._last = given[-1]
        self.num_samples += len(given)
        final = (self.num_samples - self._half) // self.config.hop_length + 1
        return self._compute(max(final, 0))

    def finish(self) -> FloatArray:
        """Frames [num_mel_bins, k] that were not final yet, zeros behind the audio. Nothing may follow."""
        missing = np.zeros(self.config.win_length)
        self._tail = np.concatenate((self._tail, missing))
        return self._compute(self.config.num_frames(self.num_samples))

    def _compute(self, last: int) -> FloatArray:
        """Frames `num_frames` to `last`, of those that count; the tail begins where the first does."""
        hop, size = self.config.hop_length, self.config.win_length
        last = min(last, self.config.num_frames(self.num_samples))
        num = max(0, last - self.num_frames)
        output = np.empty((self.config.num_mel_bins, num), np.float32)
        for first in range(0, num, _BLOCK_FRAMES):
            end = min(num, first + _BLOCK_FRAMES)
            samples = self._tail[first * hop : (end - 1) * hop + size]
            frames = np.lib.stride_tricks.sliding_window_view(samples, size)[::hop]
            output[:, first:end] = self._spectrum.log_mel(frames)
        self._tail = self._tail[num * hop :].copy()
        self.num_frames += num
        return output


class ChunkCutter:
    """Frames in pieces of any length → chunks of fixed lengths, the first of its own."""

    def __init__(self, num_mel_bins: int, *, first: int, rest: int) -> None:
        """The first chunk has `first` frames, every other one `rest`."""
        self._held: FloatArray = np.empty((num_mel_bins, 0), np.float32)
        self._next, self._rest = first, rest

    def append(self, frames: FloatArray) -> Iterator[FloatArray]:
        """Add frames [num_mel_bins, k]; the chunks that became full."""
        self._held = np.concatenate((self._held, frames), axis=1)
        while self._held.shape[1] >= self._next:
            chunk = np.ascontiguousarray(self._held[:, : self._next])
            self._held, self._next = self._held[:, self._next :], self._rest
            yield chunk
        self._held = self._held.copy()

    @property
    def remainder(self) -> FloatArray:
        """Frames [num_mel_bins, k] of the chunk that is not full: the last one, if the audio ends here."""
        return self._held


def log_mel(samples: FloatArray, config: NemoFeatureConfig) -> FloatArray:
    """The frames [num_mel_bins, samples // hop] of a whole recording."""
    source = NemoLogMel(config)
    return np.concatenate((source.append(samples), source.finish()), axis=1)


def normalised(frames: FloatArray) -> FloatArray:
    """A new array: each band less its mean over all frames, divided by its standard deviation. A single frame
    has none, and becomes zeros."""
    num = frames.shape[1]
    centred = frames.astype(np.float64) - frames.mean(axis=1, keepdims=True, dtype=np.float64)
    deviation = np.sqrt(np.square(centred).sum(axis=1, keepdims=True) / max(num - 1, 1))
    output: FloatArray = (centred / (deviation + _LEAST_DEVIATION)).astype(np.float32)
    return output
