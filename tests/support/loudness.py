"""Voice activity without the network: whatever is not digital silence is speech. For sessions of hours."""

from __future__ import annotations

from sensorium.actors.speech.model import Samples
from sensorium.media.voice_activity import VoiceActivityModel

SCORED = 4_096
"""Samples between two scores, 256 ms: hours of 32 ms would take minutes."""


class LoudnessActivity:
    """Stands in for `VoiceActivityStream`."""

    def __init__(self, model: VoiceActivityModel) -> None:
        self._num_samples = 0

    def reset(self) -> None:
        """There is nothing to forget."""

    def push(self, samples: Samples) -> list[tuple[int, float]]:
        """`(end_sample, probability)` of every score whose place `samples` reach."""
        first = self._num_samples
        self._num_samples += len(samples)
        places = range(first - first % SCORED + SCORED, self._num_samples + 1, SCORED)
        return [(place, 0.95 if samples[place - first - 1] else 0.02) for place in places]
