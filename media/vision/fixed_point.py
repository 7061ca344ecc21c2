"""Resizes pictures as torchvision does on a CPU: weights have 16 bits, each of two passes rounds to bytes.

Image processors of `transformers` that have no variant for Pillow resize so. Results equal those of
`torch.nn.functional.interpolate` on uint8, with antialiasing, bit for bit. Those of Pillow differ: its
weights have 22 bits. Knows neither torch nor models; read next: `media/vision/rules/torchvision_values.py`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .images import PixelArray

_Doubles = npt.NDArray[np.float64]
_CUBIC: Final = -0.5
"""The slope of the cubic filter at one."""
_WEIGHT_BITS: Final = 15
_MOST_FRACTION_BITS: Final = 22
_EXACT_IN_FLOAT32: Final = 1 << 24
_BLOCK: Final = 16
"""Lines of a result that one product of matrices makes."""


def resize(picture: PixelArray, height: int, width: int, *, is_cubic: bool) -> PixelArray:
    """uint8 [h, w, channels] → [height, width, channels], by a cubic or a linear filter."""
    across = _pass(picture.transpose(1, 0, 2), width, is_cubic=is_cubic)
    return _pass(across.transpose(1, 0, 2), height, is_cubic=is_cubic)


def _pass(lines: PixelArray, number: int, *, is_cubic: bool) -> PixelArray:
    """uint8 [n, m, channels] → [number, m, channels]."""
    if len(lines) == number:
        return lines
    first, weights, fraction_bits = _weights(len(lines), number, is_cubic=is_cubic)
    one = 1 << fraction_bits
    most = 255 * np.abs(weights).sum(1).max() + one
    dtype = np.float32 if most < _EXACT_IN_FLOAT32 else np.float64
    flat = np.ascontiguousarray(lines).reshape(len(lines), -1)
    found = np.empty((number, flat.shape[1]), np.uint8)
    for start in range(0, number, _BLOCK):
        ours = slice(start, start + _BLOCK)
        low = int(first[start])
        high = min(int(first[ours].max()) + weights.shape[1], len(lines))
        # Weights behind the last line are zero; those of one line of the result lie in its own columns.
        band = np.zeros((len(first[ours]), high - low + weights.shape[1]), dtype)
        columns = first[ours, None] - low + np.arange(weights.shape[1])
        np.put_along_axis(band, columns, weights[ours].astype(dtype), axis=1)
        sums = band[:, : high - low] @ flat[low:high].astype(dtype)
        found[ours] = np.clip(np.floor(sums / one + dtype(0.5)), 0, 255)
    return found.reshape(number, *lines.shape[1:])


def _weights(size: int, number: int, *, is_cubic: bool) -> tuple[npt.NDArray[np.int64], _Doubles, int]:
    """For each line of a result the first line it is made of; the integer weights [number, taps] of that line
    and the next ones; how many of their bits are a fraction."""
    scale = size / number
    stretch = max(scale, 1.0)
    support = (2.0 if is_cubic else 1.0) * stretch
    taps = int(np.ceil(support)) * 2 + 1
    centers = scale * (np.arange(number) + 0.5)
    first = np.maximum((centers - support + 0.5).astype(np.int64), 0)
    counts = np.clip(np.minimum((centers + support + 0.5).astype(np.int64), size) - first, 0, taps)
    places = np.arange(taps)
    distances = np.abs((places + first[:, None] - centers[:, None] + 0.5) * (1 / stretch))
    weights = np.where(places < counts[:, None], _filter(distances, is_cubic=is_cubic), 0.0)
    weights /= weights.sum(1, keepdims=True)
    most, bits = weights.max(), 0
    while bits < _MOST_FRACTION_BITS and int(0.5 + most * (1 << (bits + 1))) < 1 << _WEIGHT_BITS:
        bits += 1
    return first, np.trunc(weights * (1 << bits) + np.copysign(0.5, weights)), bits


def _filter(distances: _Doubles, *, is_cubic: bool) -> _Doubles:
    if not is_cubic:
        return np.maximum(1.0 - distances, 0.0)
    x, a = distances, _CUBIC
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return np.where(x < 1, near, np.where(x < 2, (((x - 5) * x + 8) * x - 4) * a, 0.0))
