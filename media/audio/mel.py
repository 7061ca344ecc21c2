"""Mel filter banks, Slaney's, HTK's and Kaldi's, as float64 numbers and in the sparse form that is applied.

Sources: M. Slaney, Auditory Toolbox (1998): linear below 1 kHz, logarithmic above, each triangle of unit
area.
S. Young et al., The HTK Book, §5.6: logarithmic everywhere, each triangle of height 1.
Kaldi, `feat/mel-computations.h`: HTK's scale, on which the triangles have straight sides.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_LINEAR_HZ_PER_MEL: Final = 200 / 3
_BREAK_HZ: Final = 1000.0
_BREAK_MEL: Final = _BREAK_HZ / _LINEAR_HZ_PER_MEL
_MELS_PER_E_FOLD: Final = 27 / np.log(6.4)
_HTK_HZ: Final = 700.0
_HTK_MELS: Final = 2595.0

_KALDI_MELS: Final = 1127.0

Float64Array = npt.NDArray[np.float64]


def _hz_to_mel(hz: float) -> float:
    if hz < _BREAK_HZ:
        return hz / _LINEAR_HZ_PER_MEL
    return float(_BREAK_MEL + np.log(hz / _BREAK_HZ) * _MELS_PER_E_FOLD)


def _mel_to_hz(mel: Float64Array) -> Float64Array:
    above: Float64Array = _BREAK_HZ * np.exp((mel - _BREAK_MEL) / _MELS_PER_E_FOLD)
    return np.where(mel < _BREAK_MEL, mel * _LINEAR_HZ_PER_MEL, above)


def mel_filters(*, num_bins: int, num_mels: int, sampling_rate: int, max_hz: float) -> Float64Array:
    """Weights [num_mels, num_bins] from the power of FFT bins (0 Hz to Nyquist) to mel bands."""
    corner_hz = _mel_to_hz(np.linspace(0.0, _hz_to_mel(max_hz), num_mels + 2))
    area: Float64Array = 2.0 / (corner_hz[2:, None] - corner_hz[:-2, None])
    return _triangles(corner_hz, num_bins, sampling_rate) * area


def htk_filters(
    *, num_bins: int, num_mels: int, sampling_rate: int, max_hz: float, min_hz: float = 0.0
) -> Float64Array:
    """The same on HTK's scale, not normalised, of bands from `min_hz` on."""
    lowest, highest = (_HTK_MELS * np.log10(1 + hz / _HTK_HZ) for hz in (min_hz, max_hz))
    mels = np.linspace(lowest, highest, num_mels + 2)
    corner_hz: Float64Array = _HTK_HZ * (10 ** (mels / _HTK_MELS) - 1)
    return _triangles(corner_hz, num_bins, sampling_rate)


def kaldi_filters(
    *, num_bins: int, num_mels: int, sampling_rate: int, min_hz: float, max_hz: float
) -> Float64Array:
    """The same with sides of triangles that are straight on the mel scale."""
    bin_hz = np.linspace(0, sampling_rate / 2, num_bins)
    bins, lowest, highest = (
        _KALDI_MELS * np.log1p(np.asarray(hz) / _HTK_HZ) for hz in (bin_hz, min_hz, max_hz)
    )
    return _between(np.linspace(lowest, highest, num_mels + 2), bins)


def _triangles(corner_hz: Float64Array, num_bins: int, sampling_rate: int) -> Float64Array:
    return _between(corner_hz, np.linspace(0, sampling_rate // 2, num_bins))


def _between(corners: Float64Array, bins: Float64Array) -> Float64Array:
    left, centre, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising = (bins - left) / (centre - left)
    falling = (right - bins) / (right - centre)
    return np.maximum(0.0, np.minimum(rising, falling))


class SparseFilters:
    """Applies a filter bank to power spectra, using only the bins each band covers.

    Each row's result is a fixed sequence of additions, so that it does not depend, in any bit, on how many
    rows are given at once. A matrix product promises no such thing, and content hashes rely on it.
    """

    def __init__(self, filters: npt.NDArray[Any]) -> None:
        bins: list[int] = []
        weights: list[float] = []
        starts: list[int] = []
        for row in filters:
            starts.append(len(bins))
            # A band narrower than the bins' distance may cover none: then it keeps one bin of weight 0.
            covered = np.flatnonzero(row) if row.any() else np.zeros(1, np.intp)
            bins.extend(covered.tolist())
            weights.extend(row[covered].tolist())
        self._bins = np.array(bins, dtype=np.intp)
        self._weights = np.array(weights, dtype=np.float64)
        self._starts = np.array(starts, dtype=np.intp)

    def apply(self, power: Float64Array) -> Float64Array:
        """Band energies [rows, num_mels] of power spectra [rows, num_bins]."""
        bands: Float64Array = np.add.reduceat(power[:, self._bins] * self._weights, self._starts, axis=1)
        return bands
