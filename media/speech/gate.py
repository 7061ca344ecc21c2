"""Whether anybody speaks at all in a stretch of audio: what holds no speech is not worth asking a model.

Models answer noise, hum and music with words; the voice activity network does not hear any there. A stretch
is judged alone, from its first sample on, so that a live turn and a file of the same samples are judged
alike. Built on `media/speech/voice_activity.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...protocols.shared.audio_format import INTERNAL_RATE
from .voice_activity import FRAME_SAMPLES, FloatArray, VoiceActivityModel, VoiceActivityStream

SPEECH_PROBABILITY: Final = 0.3
"""Of a frame. White and pink noise, hum, clicks and chords stay below 0.28, speech reaches it even 50 dB
fainter than recorded; see `tests/media/speech/test_gate.py`."""
ENOUGH: Final = 2.0
"""The probabilities of such frames together: two sure ones, or six doubtful. One alone is found in half of
all music. `examples/benchmarks/bench_hearing.py` shows what other values do to human words and to music."""
_LOOK_SAMPLES: Final = 4 * FRAME_SAMPLES
"""Scored before looking at the scores."""


class SpeechGate:
    """Looks for speech in a stretch that grows, and no further than the first it finds.

    Speech usually begins early, so that is some ten frames of 0.1 ms; audio without any costs 3 ms a second.
    """

    def __init__(self, model: VoiceActivityModel) -> None:
        self._stream = VoiceActivityStream(model)
        self._evidence = 0.0
        self._found: int | None = None
        self.num_samples = 0
        """Samples pushed."""

    def push(self, samples: FloatArray) -> None:
        """The next samples [n] of the stretch."""
        self.num_samples += len(samples)
        if self._found is not None:
            return
        for end, probability in _speech(self._stream, samples):
            self._evidence += probability
            if self._evidence >= ENOUGH:
                self._found = end
                return

    def has_speech(self, num_samples: int) -> bool:
        """Whether the first `num_samples` of the stretch, at most those pushed, hold speech."""
        return self._found is not None and self._found <= num_samples


def speaks_for(model: VoiceActivityModel, samples: FloatArray, seconds: float) -> bool:
    """Whether somebody speaks for `seconds` of `samples` [n], together.

    Looks no further than that; audio without speech costs 3 ms a second.
    """
    wanted = seconds * INTERNAL_RATE
    num_speech = 0
    for _ in _speech(VoiceActivityStream(model), samples):
        num_speech += FRAME_SAMPLES
        if num_speech >= wanted:
            return True
    return num_speech >= wanted


def _speech(stream: VoiceActivityStream, samples: FloatArray) -> Iterator[tuple[int, float]]:
    """Where the frames with speech end that `samples` [n] complete, and how likely it is; no further than
    somebody wants to know."""
    for start in range(0, len(samples), _LOOK_SAMPLES):
        for end, probability in stream.push(samples[start : start + _LOOK_SAMPLES]):
            if probability >= SPEECH_PROBABILITY:
                yield end, probability
