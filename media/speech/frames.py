"""What loudness and spectrum say about spoken words: where somebody is heard, and where sounds change.

Band energies every 10 ms, measured against the recording's own background. No network, no state; for
`media/speech/word_times.py`. Turns of a live session are found by `media/speech/voice_activity.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from ...protocols.shared.audio_format import INTERNAL_RATE
from ..audio.mel import mel_filters

Samples = npt.NDArray[np.float32]
FloatArray = npt.NDArray[np.float64]

HOP_SAMPLES: Final = 160
FRAME_S: Final = HOP_SAMPLES / INTERNAL_RATE
_WINDOW_SAMPLES: Final = 400
"""25 ms: two periods of a low voice."""
_NUM_BANDS: Final = 20
_MELS_PER_BAND: Final = 4
_FLOOR: Final = 1e-9
DEAD_DB: Final = 60.0
"""So far below the loudest frame is no microphone's background: the stream was muted or padded."""
CLAMPED_DB: Final = 6.0
"""Frames whose bands are all this near to the lowest value are where log-mel features were clamped."""
BACKGROUND_SHARE: Final = 0.1
"""The quietest tenth of a band's other frames is its background."""
ACTIVE_SHARE: Final = 0.3
"""Heard is what exceeds the background by this share of what the loudest frames do, in decibels."""
_BLOCK_FRAMES: Final = 200
_AROUND_FRAMES: Final = 300
"""The background is that of 2 s and 3 s on either side: rooms, voices and levels change."""
MIN_PAUSE_FRAMES: Final = 10
"""Shorter silences belong to words: stop consonants close for up to 100 ms."""
MIN_SOUND_FRAMES: Final = 4
"""Shorter sounds between silences are clicks."""
MAX_TAIL_FRAMES: Final = 20
"""A last sound fades for so long at most; what goes on for longer is the room. Where silence is dead, the
quietest tenth of the other frames are such ends of words, no background: they are compared with silence."""
MIN_DEAD_FRAMES: Final = 3
"""Fewer dead frames within reach are no silence to compare with."""
_CHANGE_FRAMES: Final = 3


@cache
def _filters() -> npt.NDArray[np.float32]:
    filters = mel_filters(
        num_bins=_WINDOW_SAMPLES // 2 + 1, num_mels=_NUM_BANDS, sampling_rate=INTERNAL_RATE, max_hz=7600.0
    )
    return filters.T.astype(np.float32)


def band_levels(samples: Samples) -> FloatArray:
    """Decibels of power in mel bands, [frames, bands]; frame t is centred on sample (t + ½) * 160."""
    num_frames = _num_frames(len(samples))
    margin = (_WINDOW_SAMPLES - HOP_SAMPLES) // 2
    if not num_frames:
        return np.zeros((0, _NUM_BANDS))
    padded = np.zeros(num_frames * HOP_SAMPLES + 2 * margin, np.float32)
    padded[margin : margin + len(samples)] = samples[: len(padded) - margin]
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW_SAMPLES)[::HOP_SAMPLES]
    spectra = np.fft.rfft(frames * np.hanning(_WINDOW_SAMPLES).astype(np.float32), axis=-1)
    power = np.square(np.abs(spectra)).astype(np.float32) @ _filters()
    levels: FloatArray = 10 * np.log10(power.astype(np.float64) + _FLOOR)
    return levels


@dataclass(frozen=True, slots=True)
class SpeechFrames:
    """A recording in frames of 10 ms.

    `active` are the indices of frames in which somebody is heard, ascending: one axis without the pauses, on
    which words follow each other directly. `change` [frames] in 0 to 1 says how different the sounds before
    and behind each frame's start are.
    """

    num_frames: int
    duration_s: float
    active: npt.NDArray[np.int64]
    change: FloatArray

    def within(self, regions: Sequence[tuple[int, int]], least: int) -> SpeechFrames:
        """The same, but only what lies in `regions` (samples) is heard: elsewhere nobody speaks.

        Regions that leave fewer than `least` heard frames are mistaken, and change nothing.
        """
        is_speech = np.zeros(self.num_frames, np.bool_)
        for start, end in regions:
            is_speech[start // HOP_SAMPLES : -(-end // HOP_SAMPLES)] = True
        active = self.active[is_speech[self.active]]
        return self if len(active) < least else replace(self, active=active)


def speech_frames(samples: Samples) -> SpeechFrames:
    """Frames of samples [n]; digital silence is heard nowhere. About 1 ms a second of audio."""
    return _frames(band_levels(samples), len(samples))


def log_mel_frames(features: npt.NDArray[np.float32], num_samples: int) -> SpeechFrames:
    """Frames of a window's features [mels, frames], as `media/audio/features.py` gives them, without its
    padding.

    A feature frame is centred on its first sample, so that times come out up to 5 ms early.
    """
    num_frames = min(_num_frames(num_samples), features.shape[1])
    mels = features[: features.shape[0] // _MELS_PER_BAND * _MELS_PER_BAND, :num_frames]
    bands = mels.astype(np.float64).reshape(-1, _MELS_PER_BAND, num_frames).mean(axis=1)
    return _frames((40.0 * bands - 40.0).T, num_samples)


def _num_frames(num_samples: int) -> int:
    """Whole frames; what is left over belongs to the last one, or is one."""
    return max(num_samples // HOP_SAMPLES, min(num_samples, 1))


def _frames(levels: FloatArray, num_samples: int) -> SpeechFrames:
    if not len(levels):
        return SpeechFrames(0, 0.0, np.zeros(0, np.int64), np.zeros(0))
    return SpeechFrames(
        len(levels), num_samples / INTERNAL_RATE, np.flatnonzero(_active(levels)), _change(levels)
    )


def _active(levels: FloatArray) -> npt.NDArray[np.bool_]:
    """Frames clearly above the background around them, without clicks, with the closures of consonants."""
    mean = levels.mean(axis=1)
    sounding = mean > max(mean.max() - DEAD_DB, levels.min() + CLAMPED_DB)
    loud, audible = np.zeros((2, len(levels)), np.bool_)
    for start in range(0, len(levels), _BLOCK_FRAMES):
        near = slice(max(0, start - _AROUND_FRAMES), start + _BLOCK_FRAMES + _AROUND_FRAMES)
        block = slice(start, start + _BLOCK_FRAMES)
        known, dead = levels[near][sounding[near]], levels[near][~sounding[near]]
        if len(known):
            background = np.quantile(known, BACKGROUND_SHARE, axis=0)
            loud[block] = _above(background, known, levels[block])
        if len(known) and len(dead) >= MIN_DEAD_FRAMES:
            audible[block] = _above(np.median(dead, axis=0), known, levels[block])
    active = _without_short(~_without_short(~loud, MIN_PAUSE_FRAMES), MIN_SOUND_FRAMES)
    return _with_tails(active, audible & sounding)


def _above(background: FloatArray, known: FloatArray, levels: FloatArray) -> npt.NDArray[np.bool_]:
    """Which of `levels` [frames, bands] exceed the background [bands] as `ACTIVE_SHARE` says of `known`."""
    loudest = float(np.quantile(np.maximum(known - background, 0.0).mean(axis=1), 0.95))
    excess = np.maximum(levels - background, 0.0).mean(axis=1)
    above: npt.NDArray[np.bool_] = excess > max(ACTIVE_SHARE * loudest, 1e-6)
    return above


def _with_tails(active: npt.NDArray[np.bool_], audible: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """With what is audible directly behind what is heard, where it ends within so many frames."""
    result = active.copy()
    tails = np.append(audible & ~active, False)
    for end in (np.flatnonzero(active[:-1] & ~active[1:]) + 1).tolist():
        length = int(np.argmin(tails[end:]))
        if length <= MAX_TAIL_FRAMES:
            result[end : end + length] = True
    return result


def _without_short(mask: npt.NDArray[np.bool_], shortest: int) -> npt.NDArray[np.bool_]:
    """The mask without its runs of true shorter than `shortest`; those at the ends stay."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    result = mask.copy()
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if end - start < shortest and start > 0 and end < len(mask):
            result[start:end] = False
    return result


def _change(levels: FloatArray) -> FloatArray:
    """Distance of the mean spectra of the 30 ms before and behind each frame's start, by rank."""
    padded = np.pad(levels, ((_CHANGE_FRAMES, _CHANGE_FRAMES), (0, 0)), mode="edge")
    sums = np.cumsum(np.pad(padded, ((1, 0), (0, 0))), axis=0)
    means = (sums[_CHANGE_FRAMES:] - sums[:-_CHANGE_FRAMES]) / _CHANGE_FRAMES
    distance = np.abs(means[_CHANGE_FRAMES:] - means[:-_CHANGE_FRAMES]).mean(axis=1)[: len(levels)]
    top = float(np.quantile(distance, 0.95))
    change: FloatArray = np.minimum(distance / max(top, 1e-6), 1.0)
    return change
