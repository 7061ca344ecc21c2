"""Channels are mixed to their mean, bit for bit, unless that cancels them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.actors.local.options import read_samples
from sensorium.media.audio.decode import decode_audio
from sensorium.media.audio.downmix import Mixer
from support.audio_files import sound_file
from support.sound_streams import OPUS_RATE, streamed, voice

FloatArray = npt.NDArray[np.float32]

RATE = 16_000
VOICE = voice(1.0, rate=RATE)
FIRST = RATE // 20
"""Samples that are a mean in any case."""


def noise(seed: int, seconds: float = 1.0) -> FloatArray:
    return (0.1 * np.random.default_rng(seed).standard_normal(round(seconds * RATE))).astype(np.float32)


ORDINARY = {
    "the same": [VOICE, VOICE],
    "one is silent": [VOICE, 0 * VOICE],
    "unlike": [noise(1), noise(2)],
    "opposite, but half as loud": [VOICE, -0.5 * VOICE],
    "late": [VOICE, np.roll(VOICE, 9)],
    "one after the other": [VOICE * (np.arange(RATE) < 8000), VOICE * (np.arange(RATE) >= 8000)],
    "silence": [0 * VOICE, 0 * VOICE],
    "six": [noise(seed) for seed in range(6)],
}


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_mix_is_the_mean_bit_for_bit(name: str) -> None:
    channels = np.stack(ORDINARY[name]).astype(np.float32)
    mean = channels.mean(axis=0, dtype=np.float32)
    np.testing.assert_array_equal(Mixer().mix(channels, RATE), mean)
    wav = sound_file(channels.T, subtype="FLOAT")
    np.testing.assert_array_equal(decode_audio(wav).samples, mean)


@pytest.mark.parametrize("opposite", [-1.0, -0.9, -1.2])
def test_channels_that_cancel_are_not_mixed(opposite: float) -> None:
    channels = np.stack([VOICE, opposite * VOICE]).astype(np.float32)
    loudest = channels[int(abs(opposite) > 1)]
    mixed = Mixer().mix(channels, RATE)
    np.testing.assert_array_equal(mixed[FIRST:], loudest[FIRST:])
    np.testing.assert_array_equal(decode_audio(sound_file(channels.T, subtype="FLOAT")).samples, mixed)
    np.testing.assert_array_equal(read_samples((channels.T, RATE), "audio"), mixed)


def test_more_than_two_channels_may_cancel() -> None:
    channels = np.stack([0.5 * VOICE, -VOICE, 0.5 * VOICE, 0 * VOICE]).astype(np.float32)
    np.testing.assert_array_equal(Mixer().mix(channels, RATE)[FIRST:], channels[1, FIRST:])


def test_it_is_decided_anew_where_the_phase_changes() -> None:
    straight, turned = np.stack([VOICE, VOICE]), np.stack([VOICE, -VOICE])
    channels = np.concatenate([turned, straight, *[turned] * 6], axis=1)
    mixed = Mixer().mix(channels, RATE)
    levels = np.sqrt(np.square(mixed).reshape(-1, RATE).mean(axis=1))
    level = float(np.sqrt(np.square(VOICE).mean()))
    np.testing.assert_allclose(levels[[0, 1, -1]], level, rtol=0.06)


@given(st.lists(st.integers(0, 3 * RATE), max_size=12), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_no_cut_changes_the_mix(cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    gains = np.repeat(rng.choice([-1.0, -0.8, 0.3, 1.0], 6), RATE // 2)
    sound = noise(seed, 3.0)
    channels = np.stack([sound, gains * sound]).astype(np.float32)
    whole, mixer = Mixer().mix(channels, RATE), Mixer()
    edges = [0, *sorted(cuts), 3 * RATE]
    parts = [mixer.mix(channels[:, a:b], RATE) for a, b in pairwise(edges)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize(
    ("kind", "subtype"), [("FLAC", "PCM_16"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]
)
def test_a_live_stream_in_opposite_phase_is_its_file(kind: str, subtype: str) -> None:
    sound = voice(1.0)
    data = sound_file(np.stack([sound, -sound], axis=1), rate=OPUS_RATE, kind=kind, subtype=subtype)
    whole = decode_audio(data).samples
    assert float(np.sqrt(np.square(whole).mean())) > 0.2
    np.testing.assert_array_equal(streamed(data, range(997, len(data), 997)), whole)


def test_each_recording_of_a_file_begins_afresh() -> None:
    straight, turned = (np.stack([VOICE, gain * VOICE], axis=1) for gain in (1.0, -1.0))
    parts = [sound_file(each, subtype="FLOAT") for each in (straight, turned)]
    samples = decode_audio(b"".join(parts)).samples
    np.testing.assert_array_equal(samples, np.concatenate([decode_audio(each).samples for each in parts]))
