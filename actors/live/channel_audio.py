"""One channel of a session's sound: the samples that may still be asked for, and how likely they are speech.

`actors/live/audio.py` fills it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from ...media.audio.resample import StreamingResampler
from ...media.speech.cut_points import best_cut
from ...media.speech.voice_activity import FRAME_SAMPLES
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...realtime.effects import FindCut
from ...realtime.turns.listener import SEARCH_S
from .audio_store import AudioStore, Samples

_KEPT_FRAMES: Final = round((SEARCH_S + 1) * INTERNAL_RATE / FRAME_SAMPLES)
"""A second more of scores than a session has searched for a cut."""
_NOTHING: Final = np.zeros(0, np.float32)


class Track:
    """Its store is read by whoever transcribes."""

    def __init__(self) -> None:
        self.store = AudioStore()
        self._resampler = StreamingResampler(1, 1)
        self._num_pushed = self._num_out = 0
        """Samples at their own rate, and what they became, since `begin`."""
        self._activity: deque[tuple[int, float]] = deque(maxlen=_KEPT_FRAMES)
        """The newest scores, for where endless speech is cut."""

    def begin(self, rate: int) -> None:
        """Samples come at this rate from now on; what the filter held back is dropped."""
        self._resampler = StreamingResampler(rate)
        self._num_pushed = self._num_out = 0

    def resampled(self, samples: Samples) -> Samples:
        """What became final with [n] more, at 16 kHz."""
        found = self._resampler.push(samples)
        self._num_pushed += len(samples)
        self._num_out += len(found)
        return found

    def flushed(self) -> Samples:
        """What the filter held back. What comes next begins with a fresh one, and on the client's
        time: what each one rounds would add up."""
        tail = self._resampler.push(_NOTHING, last=True)
        rate = self._resampler.source_rate
        self._resampler = StreamingResampler(rate)
        num_due = round(self._num_pushed * INTERNAL_RATE / rate) - self._num_out
        tail = np.pad(tail, (0, 1))[:num_due]
        self._num_out += len(tail)
        return tail

    def scored(self, end_sample: int, probability: float) -> None:
        """The voice activity of the next frame."""
        self._activity.append((end_sample, probability))

    def best_cut(self, effect: FindCut) -> int:
        """Where speech is cut best. Whole frames are searched: about a millisecond for 8 s."""
        frames = [
            (end - FRAME_SAMPLES, probability)
            for end, probability in self._activity
            if effect.after <= end - FRAME_SAMPLES
        ]
        start = frames[0][0] if frames else effect.after
        return start + best_cut(self.store.copy(start, effect.before), [each for _, each in frames])
