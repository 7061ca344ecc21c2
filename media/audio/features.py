"""Log-mel features of audio, whole or as it arrives, equal to `transformers`' extractors.

Audio is reflected at both ends by half an FFT frame; a frame is final when no later sample can change it, and
final frames are computed once (`RawLogMel`). The clamp at (maximum - 8) covers the whole audio, so it is
applied last, when features are asked for. `IncrementalLogMel` is Whisper's window, zero-padded to its full
length; for Qwen3-ASR's windows of an utterance of any length see `media/audio/encoder_windows.py`. Samples
come from `media/audio/resample.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...protocols.engine.messages import EncoderItem
from ...protocols.errors import ModelLoadError
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.shared.json_file import read_json
from ..hashing import encoder_item
from .mel import Float64Array, SparseFilters, mel_filters

FloatArray = npt.NDArray[np.float32]

MAX_HZ: Final = 8000.0
"""Upper edge of the filter bank, whatever the sampling rate."""
_FLOOR: Final = 1e-10
"""Smallest band energy; log10 of it is what silence looks like."""
_SILENCE: Final = np.float32(np.log10(_FLOOR))
DYNAMIC_RANGE: Final = np.float32(8.0)
"""Decades below the loudest band that features keep."""
_BLOCK_FRAMES: Final = 128
"""Frames transformed at once: their float64 samples and spectra (0.8 MB) stay in the processor's cache."""

_FILES: Final = (("preprocessor_config.json", None), ("processor_config.json", "feature_extractor"))
_DEFAULTS: Final = {
    "sampling_rate": INTERNAL_RATE,
    "hop_length": 160,
    "chunk_length": 30,
    "n_fft": 400,
    "min_length": 8_000,
}
"""What the extractors of `transformers` assume for fields that a file leaves out, beside how many mel bins.
Whisper's has no minimum: that is what was put in front of it where Qwen3-ASR was first published with it."""


@dataclass(frozen=True, slots=True)
class FeatureConfig:
    """The extractor's numbers, from the checkpoint.

    `window_samples` is the whole window of Whisper's encoder, and means nothing for Qwen3-ASR; `min_samples`
    is what Qwen3-ASR's extractor pads shorter audio to with zeros.
    """

    num_mel_bins: int = 80
    sampling_rate: int = INTERNAL_RATE
    hop_length: int = 160
    n_fft: int = 400
    window_samples: int = 480_000
    min_samples: int = 8_000

    @property
    def window_frames(self) -> int:
        """Feature frames of a window; the frame centred on the very end is dropped."""
        return self.window_samples // self.hop_length

    @property
    def window_s(self) -> float:
        """Seconds of a window."""
        return self.window_samples / self.sampling_rate

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        extractors: Mapping[str, int],
        *,
        num_mel_bins: int | None = None,
        window_frames: int | None = None,
    ) -> FeatureConfig:
        """Read a model folder's preprocessor_config.json, or processor_config.json with a nested extractor.

        `extractors` are the family's, with the mel bins that each assumes; the first where a file names none.
        `num_mel_bins` and `window_frames` are what the model takes. Raises ModelLoadError naming the file and
        the field at fault.
        """
        path, kind, values = extractor_values(Path(folder), extractors)
        defaults = {"feature_size": extractors[kind], **_DEFAULTS}
        numbers = {name: positive_int(path, name, values.get(name, defaults[name])) for name in defaults}
        if numbers["sampling_rate"] != INTERNAL_RATE:
            raise ModelLoadError(
                f"{path}: sampling_rate {numbers['sampling_rate']} is not supported, only {INTERNAL_RATE}"
            )
        if num_mel_bins not in (None, numbers["feature_size"]):
            raise ModelLoadError(
                f"{path}: feature_size is {numbers['feature_size']}, and the model takes {num_mel_bins}"
            )
        config = cls(
            num_mel_bins=numbers["feature_size"],
            hop_length=numbers["hop_length"],
            n_fft=numbers["n_fft"],
            window_samples=numbers["chunk_length"] * INTERNAL_RATE,
            min_samples=numbers["min_length"],
        )
        if window_frames not in (None, config.window_frames):
            raise ModelLoadError(
                f"{path}: chunk_length {numbers['chunk_length']} and hop_length {config.hop_length} make "
                f"windows of {config.window_frames} frames, and the model takes {window_frames}"
            )
        if config.n_fft % 2 or not config.hop_length <= config.n_fft <= config.window_samples:
            raise ModelLoadError(
                f"{path}: n_fft {config.n_fft} must be even, at least hop_length, at most the window"
            )
        if config.min_samples <= config.n_fft // 2:
            raise ModelLoadError(
                f"{path}: min_length {config.min_samples} must be over n_fft / 2, to reflect"
            )
        return config


def extractor_values(folder: Path, extractors: Mapping[str, int]) -> tuple[Path, str, dict[str, Any]]:
    """The file that configures a folder's feature extractor, which of `extractors` it is (the first where the
    file names none), and its values. Raises ModelLoadError."""
    path, values = _read_extractor(folder)
    kind = values.get("feature_extractor_type", next(iter(extractors), ""))
    if kind not in extractors:
        names = " or ".join(extractors) or "known to this family"
        raise ModelLoadError(f"{path}: feature_extractor_type {kind!r} is not {names}")
    if values.get("dither"):
        raise ModelLoadError(f"{path}: dither {values['dither']!r} is not supported, only 0.0")
    return path, kind, values


def _read_extractor(folder: Path) -> tuple[Path, dict[str, Any]]:
    for name, section in _FILES:
        path = folder / name
        if not path.is_file():
            continue
        whole = read_json(path)
        values = whole if section is None else whole.get(section)
        if isinstance(values, dict):
            return path, values
        if section in whole:
            raise ModelLoadError(f"{path}: {section} must be a JSON object")
    raise ModelLoadError(
        f"{folder} has no preprocessor_config.json, and no processor_config.json with a feature_extractor"
    )


def positive_int(path: Path, name: str, value: object) -> int:
    """The value of a field that must be a positive whole number. Raises ModelLoadError."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ModelLoadError(f"{path}: {name} must be a positive whole number, not {value!r}")
    return value


class _Spectrum:
    """Windowed frames of samples → raw log10 mel energies, row by row independent of each other."""

    def __init__(self, config: FeatureConfig) -> None:
        num_fft = config.n_fft
        self._hann: Float64Array = np.hanning(num_fft + 1)[:-1]  # periodic
        self._filters = SparseFilters(
            mel_filters(
                num_bins=num_fft // 2 + 1,
                num_mels=config.num_mel_bins,
                sampling_rate=config.sampling_rate,
                max_hz=MAX_HZ,
            )
        )

    def log_mel(self, frames: Float64Array) -> FloatArray:
        """Raw log10 energies [mels, k] of frames [k, n_fft]."""
        spectrum = np.fft.rfft(frames * self._hann)
        bands = self._filters.apply(np.square(spectrum.real) + np.square(spectrum.imag))
        return np.log10(np.maximum(bands, _FLOOR)).T.astype(np.float32)


@lru_cache(maxsize=8)
def _spectrum(config: FeatureConfig) -> _Spectrum:
    return _Spectrum(config)


class RawLogMel:
    """Raw log10 energies of audio that grows: each frame computed once no later sample can change it.

    Whatever the chunking, frames are the same bit for bit. Holds fewer than 2 FFT frames of samples.
    """

    def __init__(self, config: FeatureConfig) -> None:
        self.config = config
        self.num_samples = 0
        self.num_final = 0
        """Frames that `append` has given, from the first on."""
        self._spectrum = _spectrum(config)
        self._tail = np.zeros(0, np.float32)
        self._tail_start = 0

    def append(self, samples: FloatArray) -> FloatArray:
        """Add samples [n]; the frames [num_mel_bins, k] that became final."""
        half, hop = self.config.n_fft // 2, self.config.hop_length
        self._tail = np.concatenate((self._tail, np.asarray(samples, dtype=np.float32)))
        self.num_samples += len(samples)
        # Frame 0 is reflected about sample 0, so it reads one sample further than its right edge.
        last = (self.num_samples - half) // hop + 1 if self.num_samples > half else 0
        final = self._compute(last, self.num_samples)
        self.num_final = last
        start = last * hop - half
        if start > self._tail_start:
            self._tail = self._tail[start - self._tail_start :].copy()
            self._tail_start = start
        return final

    @property
    def num_rewind_samples(self) -> int:
        """How many samples `rewind` needs to see."""
        return self.config.n_fft + self.config.hop_length

    def rewind(self, num_samples: int, last: FloatArray) -> None:
        """Go back to the first `num_samples`, of which `last` are the last (all, or `num_rewind_samples`)."""
        half, hop = self.config.n_fft // 2, self.config.hop_length
        self.num_samples = num_samples
        self.num_final = (num_samples - half) // hop + 1 if num_samples > half else 0
        self._tail_start = max(0, self.num_final * hop - half)
        self._tail = np.array(last[len(last) - (num_samples - self._tail_start) :], np.float32)

    def edge(self, last: int, end: int) -> FloatArray:
        """Frames `num_final` to `last` as if zeros came up to sample `end`, where audio is reflected."""
        return self._compute(last, end)

    def _compute(self, last: int, end: int) -> FloatArray:
        half, hop, first = self.config.n_fft // 2, self.config.hop_length, self.num_final
        output = np.empty((self.config.num_mel_bins, max(0, last - first)), np.float32)
        for block in range(first, last, _BLOCK_FRAMES):
            stop = min(last, block + _BLOCK_FRAMES)
            samples = self._samples(block * hop - half, (stop - 1) * hop + half, end)
            frames = np.lib.stride_tricks.sliding_window_view(samples, self.config.n_fft)[::hop]
            output[:, block - first : stop - first] = self._spectrum.log_mel(frames)
        return output

    def _samples(self, start: int, stop: int, end: int) -> Float64Array:
        """Samples `start` to `stop`, reflected at 0 and at `end`; what is not known yet is 0."""
        if start >= 0 and stop <= min(end, self.num_samples):
            return self._tail[start - self._tail_start : stop - self._tail_start].astype(np.float64)
        index = np.abs(np.arange(start, stop))
        index = np.where(index < end, index, 2 * end - 2 - index)
        known = index < self.num_samples
        samples = np.zeros(len(index), np.float64)
        samples[known] = self._tail[index[known] - self._tail_start]
        return samples


def normalise(raw: FloatArray, peak: np.float32) -> FloatArray:
    """A new array: raw energies clamped at `peak` (the audio's maximum) - 8, then scaled."""
    output: FloatArray = np.maximum(raw, peak - DYNAMIC_RANGE)
    output += np.float32(4.0)
    output *= np.float32(0.25)
    return output


class IncrementalLogMel:
    """The features of one window while its audio arrives: `append` chunks, ask for `features` at any time.

    Whatever the chunking, the result is the same, bit for bit. Holds the window's raw energies (4 bytes per
    mel bin and frame).
    """

    def __init__(self, config: FeatureConfig) -> None:
        self.config = config
        self._source = RawLogMel(config)
        self._raw = np.full((config.num_mel_bins, config.window_frames), _SILENCE, np.float32)
        self._num_known = 0

    @property
    def num_samples(self) -> int:
        """Samples appended."""
        return self._source.num_samples

    @property
    def num_rewind_samples(self) -> int:
        """How many samples `rewind` needs to see."""
        return self._source.num_rewind_samples

    def rewind(self, num_samples: int, last: FloatArray) -> None:
        """Go back to the first `num_samples`, of which `last` are the last (all, or `num_rewind_samples`)."""
        self._source.rewind(num_samples, last)
        self._num_known = self._source.num_final
        self._raw[:, self._num_known :] = _SILENCE

    def room(self) -> int:
        """Samples that still fit into the window."""
        return self.config.window_samples - self.num_samples

    def append(self, samples: FloatArray) -> None:
        """Add samples [n]. Raises ValueError if they do not fit: the caller cuts segments to the window."""
        if len(samples) > self.room():
            raise ValueError(f"{len(samples)} samples do not fit, the window has room for {self.room()}")
        final = self._source.append(samples)
        self._raw[:, self._num_known : self._source.num_final] = final
        self._num_known = self._source.num_final
        if not self.room():
            self._num_known = self._add_edge(self._raw, self.config.window_frames)

    def features(self) -> FloatArray:
        """A new array [num_mel_bins, window_frames] for everything appended so far, zero-padded."""
        output = self._raw
        touched = -(-(self.num_samples + self.config.n_fft // 2) // self.config.hop_length)
        if self.num_samples and self._num_known < self.config.window_frames:
            output = output.copy()
            self._add_edge(output, min(self.config.window_frames, touched))
        return normalise(output, output.max())

    def items(self, num_before: int = 0) -> tuple[EncoderItem, ...]:
        """The one item of these features; its first frames, so many, are in front of what is answered."""
        return (encoder_item(self.features(), num_before=num_before),)

    def _add_edge(self, output: FloatArray, last: int) -> int:
        output[:, self._num_known : last] = self._source.edge(last, self.config.window_samples)
        return last
