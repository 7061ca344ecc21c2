"""Where somebody speaks in a recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from sensorium.media.speech.regions import speech_regions
from sensorium.media.speech.voice_activity import VoiceActivityModel

SECOND = 16_000


def test_regions_are_parted_by_pauses() -> None:
    path = Path(__file__).parents[3] / "examples" / "data" / "kitchen_lights.wav"
    speech = np.asarray(soundfile.read(path, dtype="float32")[0], np.float32)
    silence = np.zeros(SECOND, np.float32)
    samples = np.concatenate((silence, speech, silence, speech, silence))
    model = VoiceActivityModel()
    bounds = (SECOND, SECOND + len(speech)), (2 * SECOND + len(speech), 2 * (SECOND + len(speech)))
    regions = speech_regions(model, samples, min_silence=SECOND // 2)
    assert len(regions) == 2
    for (start, end), (first, last) in zip(regions, bounds, strict=True):
        assert first - 1_000 <= start < end <= last + 8_000
    assert len(speech_regions(model, samples, min_silence=4 * SECOND)) == 1
    wide = speech_regions(model, samples, min_silence=SECOND // 2, padding=10 * SECOND)
    assert wide[0][0] == 0
    assert wide[0][1] == wide[1][0] == (regions[0][1] + regions[1][0]) // 2
    assert wide[1][1] == len(samples)
    assert speech_regions(model, samples, min_speech=20 * SECOND) == []
    assert speech_regions(model, silence) == []
