"""How often one utterance is repeated, by the sound alone: the period of its spectrum. No model.

Models lose count of what is said again and again: whisper-base writes "seven" 20 times for 16. Who repeats a
word does so at a steady rate, so that the spectrum comes back after each copy. The copies in a text are
`media/transcript/repetition.py`'s, and `actors/speech/retries/retranscription.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from .frames import DEAD_DB, FRAME_S, HOP_SAMPLES, FloatArray, Samples, band_levels
from .regions import Region

SHORTEST_S: Final = 0.15
"""Of a period: nobody repeats a word faster."""
LEAST_SIMILARITY: Final = 0.5
"""Correlation of the spectrum with itself a period later, at least."""
_FASTER: Final = 0.8
"""Periods are searched from this share of the one that the most copies have."""
_ALIKE: Final = 0.85
"""Of the highest correlation: multiples of a period are as similar as the period, which is the first."""
_LEAST_COPIES: Final = 3
"""Of an utterance that is said twice, other sounds are too often similar."""
_SMOOTHED_FRAMES: Final = 5
"""Copies are not equally long: 50 ms either way."""


def count_copies(samples: Samples, speech: Sequence[Region], most: int) -> int | None:
    """How many copies of one utterance are in `samples` [n], `most` at the most; None: no period is clear.

    Somebody speaks in the regions of `speech`; what is between them does not count. 2 ms a second of audio.
    """
    if most < _LEAST_COPIES:
        return None
    levels = band_levels(samples)
    is_speech = np.zeros(len(levels), np.bool_)
    for start, end in speech:
        is_speech[start // HOP_SAMPLES : end // HOP_SAMPLES] = True
    spoken = levels[is_speech]
    period = _period(spoken, shortest=max(SHORTEST_S / FRAME_S, _FASTER * len(spoken) / most))
    return None if period is None else min(most, int(len(spoken) / period + 0.5))


def _period(levels: FloatArray, shortest: float) -> float | None:
    """Frames after which `levels` [frames, bands] come back, several times; None: they do not."""
    longest = len(levels) // _LEAST_COPIES
    first = int(shortest)
    if first + 2 >= longest:
        return None
    similarity = _similarities(levels, longest + 1)
    before, inner, after = (similarity[first + by : longest + by] for by in (-1, 0, 1))
    peaks = np.flatnonzero((inner >= before) & (inner >= after))
    if not len(peaks) or inner[peaks].max() < LEAST_SIMILARITY:
        return None
    peak = int(peaks[inner[peaks] >= _ALIKE * inner[peaks].max()][0])
    # Between frames: the top of the parabola through the three values.
    bend = before[peak] - 2 * inner[peak] + after[peak]
    return first + peak + (0.5 * (before[peak] - after[peak]) / bend if bend else 0.0)


def _similarities(levels: FloatArray, num_lags: int) -> FloatArray:
    """Correlation of the smoothed levels with themselves so many frames later [num_lags]."""
    kernel = np.ones(_SMOOTHED_FRAMES) / _SMOOTHED_FRAMES
    audible = np.maximum(levels, levels.max() - DEAD_DB)
    smooth = np.stack([np.convolve(band, kernel, "same") for band in audible.T], axis=1)
    smooth -= smooth.mean(axis=0)
    size = 2 * len(smooth)
    spectrum = np.fft.rfft(smooth, size, axis=0)
    products = np.fft.irfft((np.abs(spectrum) ** 2).sum(axis=1), size)[:num_lags]
    energy = np.concatenate(([0.0], np.cumsum(np.square(smooth).sum(axis=1))))
    lags = np.arange(num_lags)
    norms = np.sqrt(energy[len(smooth) - lags] * (energy[-1] - energy[lags]))
    similarities: FloatArray = products / np.maximum(norms, 1e-9)
    return similarities
