"""Whether anybody speaks at all in a stretch of audio: what holds no speech is not worth asking a model.

Models answer noise, hum and music with words; the voice activity network does not hear any there. A stretch
is judged alone, from its first sample on, so that a live turn and a file of the same samples are judged
alike. Built on `media/voice_activity.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    Speech usually begins early, so that is some ten frames of 0.2 ms; audio without any costs 6 ms a second.
    """

    def __init__(self, model: VoiceActivityModel) -> None:
        self._streams = [VoiceActivityStream(model) for _ in _GAINS]
        self._found: int | None = None
        self.num_samples = 0
        """Samples pushed."""

    def push(self, samples: FloatArray) -> None:
        """The next samples [n] of the stretch."""
        self.num_samples += len(samples)
        for start in range(0, len(samples), _LOOK_SAMPLES):
            if self._found is not None:
                return
            ends = _speech_ends(self._streams, samples[start : start + _LOOK_SAMPLES])
            self._found = min(ends, default=None)

    def has_speech(self, num_samples: int) -> bool:
        """Whether the first `num_samples` of the stretch, at most those pushed, hold speech.

        What is shorter than a frame (32 ms) holds none.
        """
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
    streams = [VoiceActivityStream(model) for _ in _GAINS]
    heard: set[int] = set()
    for start in range(0, len(samples), _LOOK_SAMPLES):
        if len(heard) * FRAME_SAMPLES >= seconds * INTERNAL_RATE:
            break
        heard |= _speech_ends(streams, samples[start : start + _LOOK_SAMPLES])
    return len(heard) * FRAME_SAMPLES >= seconds * INTERNAL_RATE


def _speech_ends(streams: Sequence[VoiceActivityStream], samples: FloatArray) -> set[int]:
    """Where frames with speech end. `streams`, one for each of `_GAINS`, go on with `samples` [n]."""
    return {
        end
        for gain, stream in zip(_GAINS, streams, strict=True)
        for end, probability in stream.push(np.clip(gain * samples, -1.0, 1.0))
        if probability >= SPEECH_PROBABILITY
    }
