"""Whether anybody speaks at all in a stretch of audio: what holds no speech is not worth asking a model.

Models answer noise, hum and music with words; the voice activity network does not hear any there. A stretch
is judged alone, from its first sample on, so that a live turn and a file of the same samples are judged
alike. Built on `media/voice_activity.py`.
"""

from __future__ import annotations

from typing import Final

from ..protocols.audio import INTERNAL_RATE
from .voice_activity import FRAME_SAMPLES, FloatArray, VoiceActivityModel, VoiceActivityStream

SPEECH_PROBABILITY: Final = 0.3
"""Of a single frame. White and pink noise, hum, clicks and chords stay below 0.28, speech reaches it even
50 dB fainter than recorded; see `tests/media/test_speech_gate.py`."""
_LOOK_SAMPLES: Final = 4 * FRAME_SAMPLES
"""Scored before looking at the scores."""


class SpeechGate:
    """Looks for speech in a stretch that grows, and no further than the first it finds.

    Speech usually begins early, so that is some ten frames of 0.1 ms; audio without any costs 3 ms a second.
    """

    def __init__(self, model: VoiceActivityModel) -> None:
        self._stream = VoiceActivityStream(model)
        self._found: int | None = None
        self.num_samples = 0
        """Samples pushed."""

    def push(self, samples: FloatArray) -> None:
        """The next samples [n] of the stretch."""
        self.num_samples += len(samples)
        for start in range(0, len(samples), _LOOK_SAMPLES):
            if self._found is not None:
                return
            for end, probability in self._stream.push(samples[start : start + _LOOK_SAMPLES]):
                if probability >= SPEECH_PROBABILITY:
                    self._found = end
                    break

    def has_speech(self, num_samples: int) -> bool:
        """Whether the first `num_samples` of the stretch, at most those pushed, hold speech.

        What is shorter than a frame (32 ms) holds none.
        """
        return self._found is not None and self._found <= num_samples


def has_speech(model: VoiceActivityModel, samples: FloatArray) -> bool:
    """Whether anybody speaks in `samples` [n]. Blocks for up to 3 ms a second: long audio is for a thread."""
    gate = SpeechGate(model)
    gate.push(samples)
    return gate.has_speech(len(samples))


def speech_s(model: VoiceActivityModel, samples: FloatArray) -> float:
    """Seconds of `samples` [n] in which somebody speaks. Blocks for 3 ms a second."""
    scores = VoiceActivityStream(model).push(samples)
    heard = sum(probability >= SPEECH_PROBABILITY for _, probability in scores)
    return heard * FRAME_SAMPLES / INTERNAL_RATE
