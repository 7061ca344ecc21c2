"""Where speech is cut that is too long for one answer: between two words, near the end of what fits.

A pause is the place, wherever there is one. In speech without any, what is quiet for long is more likely a
gap between words than the closure of a stop consonant, and so is what the voice activity network takes for no
speech. `split` cuts a whole recording; a live stream that calls `find_cut` whenever its open segment outgrows
the window gets the same cuts, because a cut depends only on the first `window_samples` after the segment
start. Endless live turns are cut by `best_cut` (`actors/live/audio.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from ...protocols.shared.audio_format import INTERNAL_RATE
from .voice_activity import FRAME_SAMPLES, FloatArray, VoiceActivityModel, VoiceActivityStream

Float64Array = npt.NDArray[np.float64]

HOP_SAMPLES: Final = 128
"""Distance between candidates: 8 ms, a quarter of a frame of voice activity."""
_QUIET_HOPS: Final = 8
"""How loud it is around a candidate: over 64 ms, as long as the closure of most stop consonants."""
_FLOOR_DB: Final = -40.0
"""Below the loudest of the searched part: quieter is as good as silent."""
_SPEECH_DB: Final = 12.0
"""What certain speech counts for, beside loudness."""
_LAG_HOPS: Final = 2
"""The network hears a gap so much later than it is."""
_EARLY_DB_PER_S: Final = 0.5
"""What a second of a segment that could have been longer counts for."""
_PAUSE_DB_PER_S: Final = 10.0
"""What a second of silence around a place counts for: sentences are parted by longer pauses than phrases, and
models understand whole ones better."""
_LONGEST_PAUSE_S: Final = 1.0
_SILENT: Final = 0.3
"""Voice activity of a frame in which nobody speaks."""
_ALIKE_DB: Final = 3.0
_PAUSE_HOPS: Final = 31
"""The cut is in the middle of what is as quiet (but for so much) as the best place, up to 248 ms around it:
what comes next may begin faintly."""
_WARM_UP_SAMPLES: Final = 32 * FRAME_SAMPLES
"""A second that the network hears before the part that is searched."""


def best_cut(samples: FloatArray, probabilities: npt.ArrayLike) -> int:
    """The best place to cut `samples` [n], in (0, n]: the quietest, likely between words, and rather late.

    `probabilities` [n / 512, or fewer: the first ones] are the voice activity of its frames. Of equally good
    places the latest wins. It is n (a hard cut) if there is less than 64 ms to search.
    """
    num_hops = len(samples) // HOP_SAMPLES
    if num_hops < _QUIET_HOPS:
        return len(samples)
    start = len(samples) - num_hops * HOP_SAMPLES  # the very last samples are candidates too
    energies = np.square(samples[start:].reshape(num_hops, HOP_SAMPLES), dtype=np.float64).mean(axis=1)
    loudness = _decibels(_smoothed(energies))
    hops = np.arange(num_hops)
    speech = np.zeros(num_hops)
    scores = np.asarray(probabilities, np.float64)
    if len(scores):
        frames = (start + (hops + _LAG_HOPS + 0.5) * HOP_SAMPLES) // FRAME_SAMPLES
        speech = scores[np.minimum(frames.astype(int), len(scores) - 1)]
    early = (num_hops - hops) * (HOP_SAMPLES / INTERNAL_RATE)
    pauses = np.minimum(_lengths(speech < _SILENT) * (HOP_SAMPLES / INTERNAL_RATE), _LONGEST_PAUSE_S)
    costs = loudness + _SPEECH_DB * speech + _EARLY_DB_PER_S * early
    costs -= _PAUSE_DB_PER_S * (pauses if len(scores) else 0.0)
    return start + _middle(loudness, int(np.argmin(costs))) * HOP_SAMPLES + HOP_SAMPLES // 2


def find_cut(samples: FloatArray, *, search_samples: int, activity: VoiceActivityModel | None = None) -> int:
    """Position at which to cut `samples` [n]: the best place of the last `search_samples`, in (0, n].

    Without `activity` loudness alone decides; with it a second of search takes up to 6 ms. Raises ValueError
    when there are no samples.
    """
    num_samples = len(samples)
    if num_samples == 0:
        raise ValueError("there is nothing to cut")
    start = max(0, num_samples - max(search_samples, 0))
    scores: list[float] = []
    if activity is not None:
        warm_up = min(start // FRAME_SAMPLES * FRAME_SAMPLES, _WARM_UP_SAMPLES)
        scored = VoiceActivityStream(activity).push(samples[start - warm_up :])
        scores = [probability for _, probability in scored[warm_up // FRAME_SAMPLES :]]
    return start + best_cut(samples[start:], scores)


def split(
    samples: FloatArray,
    *,
    window_samples: int,
    search_samples: int,
    activity: VoiceActivityModel | None = None,
    check: Callable[[], object] = lambda: None,
) -> list[tuple[int, int]]:
    """Contiguous segments `(start, end)` that cover `samples` [n], each of 1 to `window_samples` samples.

    Empty audio has no segments. What `check` raises, called before each of them, ends it.
    """
    if window_samples <= 0:
        raise ValueError(f"window_samples must be positive, not {window_samples}")
    segments = []
    start = 0
    while len(samples) - start > window_samples:
        check()
        window = samples[start : start + window_samples]
        cut = start + find_cut(window, search_samples=search_samples, activity=activity)
        segments.append((start, cut))
        start = cut
    if start < len(samples):
        segments.append((start, len(samples)))
    return segments


def _lengths(is_silent: npt.NDArray[np.bool_]) -> Float64Array:
    """For each place, how many neighbours are silent with it; 0 where it is not."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_silent, [False])).astype(np.int8)))
    lengths = np.zeros(len(is_silent))
    for first, last in edges.reshape(-1, 2):
        lengths[first:last] = last - first
    return lengths


def _middle(loudness: Float64Array, best: int) -> int:
    """The middle of the quiet place that `best` is in."""
    is_quiet = loudness <= loudness[best] + _ALIKE_DB
    first = last = best
    while first > max(0, best - _PAUSE_HOPS) and is_quiet[first - 1]:
        first -= 1
    while last + 1 < min(len(loudness), best + _PAUSE_HOPS) and is_quiet[last + 1]:
        last += 1
    return (first + last) // 2


def _smoothed(energies: Float64Array) -> Float64Array:
    """The mean around each place, over fewer at the ends.

    Summed afresh for each place: a running sum would leave rounding noise where there is silence.
    """
    ones = np.ones(_QUIET_HOPS)
    sums: Float64Array = np.convolve(energies, ones, "same")
    return sums / np.convolve(np.ones(len(energies)), ones, "same")


def _decibels(energies: Float64Array) -> Float64Array:
    loudest = max(float(energies.max()), 1e-20)
    levels: Float64Array = 10.0 * np.log10(np.maximum(energies / loudest, 10.0 ** (_FLOOR_DB / 10.0)))
    return levels
