"""Whether anybody speaks at all in a stretch of audio: what holds no speech is not worth asking a model.

Models answer noise, hum and music with words; the voice activity network does not hear any there. A stretch
is judged alone, from its first sample on, so that a live turn and a file of the same samples are judged
alike. Built on `media/voice_activity.py`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..protocols.audio import INTERNAL_RATE
from .voice_activity import FRAME_SAMPLES, FloatArray, VoiceActivityModel, VoiceActivityStream

SPEECH_PROBABILITY: Final = 0.3
"""Of a single frame. White and pink noise, hum, clicks and chords stay below 0.28, speech reaches it even
50 dB fainter than recorded; see `tests/media/test_speech_gate.py`."""
_GAINS: Final = (1.0, 16.0)
"""The network is asked about the audio as it is and amplified: it misses short words that are faint (a
peak of 0.005), if it has not heard any speech before them. Amplified noise is noise to it."""
_LOOK_SAMPLES: Final = 4 * FRAME_SAMPLES
"""Scored before looking at the scores."""


class SpeechGate:
    """Looks for speech in a stretch that grows, and no further than the first it finds.

    Speech usually begins early, so that is some ten frames of 0.1 ms; audio without any costs 6 ms a second.
    """

    def __init__(self, model: VoiceActivityModel) -> None:
        self._plain, self._amplified = (_Ear(model, gain) for gain in _GAINS)
        self._found: int | None = None
        self._unheard = np.zeros(0, np.float32)
        """In front of the speech that was found. Amplified it is asked about only if need be."""
        self.num_samples = 0
        """Samples pushed."""

    def push(self, samples: FloatArray) -> None:
        """The next samples [n] of the stretch."""
        if self._found is None:
            self._found = self._plain.first_speech(samples)
            if self._found is None:
                self._found = self._amplified.first_speech(samples)
            else:
                self._unheard = samples[: self._found - self.num_samples].copy()
        self.num_samples += len(samples)

    def has_speech(self, num_samples: int) -> bool:
        """Whether the first `num_samples` of the stretch, at most those pushed, hold speech.

        What is shorter than a frame (32 ms) holds none.
        """
        if self._found is not None and num_samples < self._found and len(self._unheard):
            earlier = self._amplified.first_speech(self._unheard)
            self._found = self._found if earlier is None else earlier
            self._unheard = self._unheard[:0]
        return self._found is not None and self._found <= num_samples


def has_speech(model: VoiceActivityModel, samples: FloatArray) -> bool:
    """Whether anybody speaks in `samples` [n]. Blocks for up to 6 ms a second: long audio is for a thread."""
    gate = SpeechGate(model)
    gate.push(samples)
    return gate.has_speech(len(samples))


def speaks_for(model: VoiceActivityModel, samples: FloatArray, seconds: float) -> bool:
    """Whether somebody speaks for `seconds` of `samples` [n], together.

    Looks no further than that; audio without speech costs 6 ms a second.
    """
    ears = [_Ear(model, gain) for gain in _GAINS]
    heard: set[int] = set()
    for start in range(0, len(samples), _LOOK_SAMPLES):
        if len(heard) * FRAME_SAMPLES >= seconds * INTERNAL_RATE:
            break
        heard.update(*(ear.speech(samples[start : start + _LOOK_SAMPLES]) for ear in ears))
    return len(heard) * FRAME_SAMPLES >= seconds * INTERNAL_RATE


class _Ear:
    """The network's view of one stretch at one gain."""

    def __init__(self, model: VoiceActivityModel, gain: float) -> None:
        self._stream = VoiceActivityStream(model)
        self._gain = gain

    def speech(self, samples: FloatArray) -> list[int]:
        """Where the frames with speech end that `samples` [n] complete."""
        scores = self._stream.push(np.clip(self._gain * samples, -1.0, 1.0))
        return [end for end, probability in scores if probability >= SPEECH_PROBABILITY]

    def first_speech(self, samples: FloatArray) -> int | None:
        """Where the first of them ends. What comes behind it is not heard any more."""
        for start in range(0, len(samples), _LOOK_SAMPLES):
            ends = self.speech(samples[start : start + _LOOK_SAMPLES])
            if ends:
                return ends[0]
        return None
