"""A level for listening: faint audio is amplified, slowly and within a bound, so that speech far from the
microphone is heard like speech near it.

For the ears only (`media/speech/voice_activity.py`): what a model transcribes is the audio as it came. The
gain follows the loudest sample of the recent past. It falls at once, so nothing is ever clipped, which makes
music sound like speech to the network; and it rises slowly, so that a pause is not taken for faint audio.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ...protocols.shared.audio_format import INTERNAL_RATE

FloatArray = npt.NDArray[np.float32]

TARGET_PEAK: Final = 0.3
"""What is louder is left as it is: the network hears it as well as it can."""
MAX_GAIN: Final = 64.0
"""Speech with a peak of 0.005 (-46 dBFS) reaches the target; digital silence stays silence."""
RELEASE_DB_PER_S: Final = 3.0
"""How fast the past is forgotten."""


class LevelControl:
    """The gain of one stream. It depends on what was heard and not on how that was cut into calls."""

    def __init__(self) -> None:
        self._peak = 0.0

    def apply(self, frames: FloatArray) -> FloatArray:
        """The next frames of the stream, [n, samples of a frame], each at its gain."""
        if not len(frames):
            return frames
        release = 10.0 ** (-RELEASE_DB_PER_S * frames.shape[1] / INTERNAL_RATE / 20)
        gains = []
        for peak in np.abs(frames).max(axis=1).tolist():
            self._peak = max(peak, release * self._peak)
            gains.append(min(MAX_GAIN, max(1.0, TARGET_PEAK / max(self._peak, 1e-9))))
        return frames * np.array(gains, np.float32)[:, None]
