"""Where turns of speech begin and end: probabilities per frame in, turn events out. Knows no audio.

Speech starts a turn once it has lasted `min_speech` (shorter bursts are noise) and the turn then dates
from its first frame. A turn is *paused* when `pause` samples have passed since its last speech frame and
*stopped* after `silence`. Hysteresis as in Silero's own iterator (github.com/snakers4/silero-vad,
`VADIterator`): a frame at or above the threshold is speech; while speech runs a frame counts as speech
down to the threshold − 0.15; once silent, only the full threshold resumes. `realtime/turns/listener.py`
decides what turns mean.
"""

from __future__ import annotations

from typing import Final

import msgspec

FRAME_SAMPLES: Final = 512
"""One probability covers 32 ms at 16 kHz."""
RELEASE_MARGIN: Final = 0.15


class TurnDetectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All durations in samples at 16 kHz."""

    threshold: float
    min_speech: int
    pause: int
    silence: int


class SpeechStarted(msgspec.Struct, frozen=True):
    """A turn began with the frame that starts at `start_sample`, some frames ago."""

    start_sample: int


class SpeechStopped(msgspec.Struct, frozen=True):
    """The turn is over; its last speech frame ended at `end_sample`."""

    end_sample: int


TurnEvent = SpeechStarted | SpeechStopped


class TurnDetector:
    """Feed frames in order; read the events, or the state between them."""

    def __init__(self, config: TurnDetectorConfig) -> None:
        self._config = config
        self.speaking = False
        """A turn is in progress (pauses included)."""
        self.silent = True
        """The last frame held no speech."""
        self.paused = False
        """The turn's silence has lasted `pause` samples."""
        self.candidate_start: int | None = None
        """Start of speech that is still too short for a turn."""
        self.last_speech_end = 0
        """End of the newest frame of speech that belongs to a turn."""

    def reconfigure(self, config: TurnDetectorConfig) -> None:
        """Use other values from the next frame on; a turn in progress goes on."""
        self._config = config

    def reset(self) -> None:
        """Forget a turn in progress."""
        self.speaking = False
        self.silent = True
        self.paused = False
        self.candidate_start = None

    def push(self, end_sample: int, probability: float) -> list[TurnEvent]:
        """Take the frame that ends at `end_sample`."""
        floor = self._config.threshold - (0.0 if self.silent else RELEASE_MARGIN)
        is_speech = probability >= floor
        self.silent = not is_speech
        start_sample = end_sample - FRAME_SAMPLES
        if not self.speaking:
            return self._wait(start_sample, end_sample, is_speech)
        if is_speech:
            self.last_speech_end = end_sample
            self.paused = False
            return []
        return self._hold(end_sample - self.last_speech_end)

    def _wait(self, start_sample: int, end_sample: int, is_speech: bool) -> list[TurnEvent]:
        if not is_speech:
            self.candidate_start = None
            return []
        if self.candidate_start is None:
            self.candidate_start = start_sample
        if end_sample - self.candidate_start < self._config.min_speech:
            return []
        started = SpeechStarted(self.candidate_start)
        self.candidate_start = None
        self.speaking = True
        self.last_speech_end = end_sample
        return [started]

    def _hold(self, silence: int) -> list[TurnEvent]:
        if silence >= self._config.silence:
            self.reset()
            return [SpeechStopped(self.last_speech_end)]
        self.paused = silence >= self._config.pause
        return []
