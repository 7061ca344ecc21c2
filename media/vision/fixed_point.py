"""Resizes pictures as torchvision does on a CPU: weights have 16 bits, each of two passes rounds to bytes.

Image processors of `transformers` that have no variant for Pillow resize so. Results equal those of
`torch.nn.functional.interpolate` on uint8, with antialiasing, bit for bit. Those of Pillow differ: its
weights have 22 bits. Knows neither torch nor models; read next: `media/vision/rules/torchvision_values.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

LANCZOS: Final = 1
BILINEAR: Final = 2
BICUBIC: Final = 3
"""The filters that there are, by Pillow's numbers."""
PixelArray = npt.NDArray[np.uint8]
_Doubles = npt.NDArray[np.float64]
_CUBIC: Final = -0.5
"""The slope of the cubic filter at one."""
_WEIGHT_BITS: Final = 15
_MOST_FRACTION_BITS: Final = 22
_EXACT_IN_FLOAT32: Final = 1 << 24
_BLOCK: Final = 16
"""Lines of a result that one product of matrices makes."""


def resize(picture: PixelArray, height: int, width: int, resample: int) -> PixelArray:
    """uint8 [h, w, channels] → [height, width, channels], by one of the filters."""
    across = _pass(picture.transpose(1, 0, 2), width, resample)
    return _pass(across.transpose(1, 0, 2), height, resample)


def value_table(
    mean: tuple[float, ...], std: tuple[float, ...], factor: float, *, do_rescale: bool, do_normalize: bool
) -> npt.NDArray[np.float32]:
    """float32 [3, 256]: what each byte becomes, the factor multiplied into mean and deviation."""
    table = np.tile(np.arange(256, dtype=np.float32), (3, 1))
    if not do_normalize:
        return table * np.float32(factor) if do_rescale else table
    middle, deviation = (np.array(each, np.float32)[:, None] for each in (mean, std))
    if do_rescale:
        middle, deviation = (each * np.float32(1 / factor) for each in (middle, deviation))
    return (table - middle) / deviation


def _pass(lines: PixelArray, number: int, resample: int) -> PixelArray:
    """uint8 [n, m, channels] → [number, m, channels]."""
    if len(lines) == number:
        return lines
    first, weights, fraction_bits = _weights(len(lines), number, resample)
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


def _weights(size: int, number: int, resample: int) -> tuple[npt.NDArray[np.int64], _Doubles, int]:
    """For each line of a result the first line it is made of; the integer weights [number, taps] of that line
    and the next ones; how many of their bits are a fraction."""
    scale = size / number
    stretch = max(scale, 1.0)
    reach, filter_ = _FILTERS[resample]
    support = reach * stretch
    taps = int(np.ceil(support)) * 2 + 1
    centers = scale * (np.arange(number) + 0.5)
    first = np.maximum((centers - support + 0.5).astype(np.int64), 0)
    counts = np.clip(np.minimum((centers + support + 0.5).astype(np.int64), size) - first, 0, taps)
    places = np.arange(taps)
    distances = np.abs((places + first[:, None] - centers[:, None] + 0.5) * (1 / stretch))
    weights = np.where(places < counts[:, None], filter_(distances), 0.0)
    weights /= weights.sum(1, keepdims=True)
    most, bits = weights.max(), 0
    while bits < _MOST_FRACTION_BITS and int(0.5 + most * (1 << (bits + 1))) < 1 << _WEIGHT_BITS:
        bits += 1
    return first, np.trunc(weights * (1 << bits) + np.copysign(0.5, weights)), bits


def _linear(x: _Doubles) -> _Doubles:
    return np.maximum(1.0 - x, 0.0)


def _cubic(x: _Doubles) -> _Doubles:
    a = _CUBIC
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return np.where(x < 1, near, np.where(x < 2, (((x - 5) * x + 8) * x - 4) * a, 0.0))


def _lanczos(x: _Doubles) -> _Doubles:
    return np.where(x < _LOBES, np.sinc(x) * np.sinc(x / _LOBES), 0.0)


_LOBES: Final = 3
_FILTERS: Final[dict[int, tuple[int, Callable[[_Doubles], _Doubles]]]] = {
    LANCZOS: (_LOBES, _lanczos),
    BILINEAR: (1, _linear),
    BICUBIC: (2, _cubic),
}
"""With the distance at which they end."""
