"""A channel's sound, and where endless speech is cut in it."""

from __future__ import annotations

import numpy as np
from sensorium.actors.live.channel_audio import Track
from sensorium.media.speech.voice_activity import FRAME_SAMPLES
from sensorium.protocols.shared.audio_format import INTERNAL_RATE
from sensorium.realtime.effects import FindCut
from sensorium.realtime.turns.listener import SEARCH_S


def test_a_pause_is_found_in_all_that_is_searched() -> None:
    track = Track()
    num_frames = 30 * INTERNAL_RATE // FRAME_SAMPLES
    end = num_frames * FRAME_SAMPLES
    pause = range(end - 11 * INTERNAL_RATE, end - 11 * INTERNAL_RATE + 4 * FRAME_SAMPLES)
    samples = np.random.default_rng(0).normal(0, 0.1, end).astype(np.float32)
    samples[pause.start : pause.stop] *= 0.001
    track.store.append(samples)
    for frame_end in range(FRAME_SAMPLES, end + 1, FRAME_SAMPLES):
        is_pause = frame_end - FRAME_SAMPLES >= pause.start and frame_end <= pause.stop
        track.scored(frame_end, 0.02 if is_pause else 0.95)
    assert track.best_cut(FindCut(end - round(SEARCH_S * INTERNAL_RATE), end)) in pause


def test_a_cut_is_where_it_was_asked_for_and_between_words() -> None:
    """A pause before what is searched is none of it, however much longer it is."""
    track = Track()
    samples = np.random.default_rng(0).normal(0, 0.1, 400 * FRAME_SAMPLES).astype(np.float32)
    long, short = range(100, 140), range(200, 203)
    quiet = {*long, *short}
    for frame in quiet:
        samples[frame * FRAME_SAMPLES : (frame + 1) * FRAME_SAMPLES] *= 0.001
    track.store.append(samples)
    for frame in range(400):
        track.scored((frame + 1) * FRAME_SAMPLES, 0.02 if frame in quiet else 0.95)
    assert track.best_cut(FindCut(140 * FRAME_SAMPLES + 100, 400 * FRAME_SAMPLES)) // FRAME_SAMPLES in short
