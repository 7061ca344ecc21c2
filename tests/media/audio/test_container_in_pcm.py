"""Files in a stream of raw samples are named; sound is never taken for one."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.audio.container_in_pcm import refusal_of_file
from sensorium.protocols.shared.audio_format import AudioFormat, wave_file

PCM = AudioFormat("pcm16", 24_000)
SAMPLES = bytes(960)


@pytest.mark.parametrize(
    ("head", "named"),
    [
        (b"OggS\0\2" + bytes(40), '{"type": "audio/ogg"}'),
        (b"\x1a\x45\xdf\xa3" + bytes(40), '{"type": "audio/webm"}'),
        (b"fLaC" + bytes(40), '{"type": "audio/flac"}'),
        (struct.pack(">I", 24) + b"ftypM4A " + bytes(40), '{"type": "audio/mp4"}'),
        (b"ID3\4\0\0\0\0\0\1a" + bytes(40), '{"type": "audio/mpeg"}'),
        (b"FORM\0\0\0\x20AIFFCOMM" + bytes(40), "/v1/audio/transcriptions"),
        (wave_file(SAMPLES, AudioFormat("pcm16", 16_000)), "pcm16 of 16000 Hz"),
        (wave_file(SAMPLES, AudioFormat("pcmu", 8_000)), "pcmu of 8000 Hz"),
        (wave_file(SAMPLES, AudioFormat("pcm16", 24_000, 2)), "2 channels"),
    ],
)
def test_a_file_is_refused_with_the_format_to_set(head: bytes, named: str) -> None:
    error = refusal_of_file(head, PCM)
    assert error is not None
    assert (error.code, error.param) == ("unexpected_container", "audio")
    assert named in error.message


@pytest.mark.parametrize("expected", [PCM, AudioFormat("pcm16", 16_000), AudioFormat("pcmu", 8_000)])
def test_a_wave_file_of_the_samples_that_are_expected_is_taken(expected: AudioFormat) -> None:
    assert refusal_of_file(wave_file(SAMPLES, expected), expected) is None
    assert refusal_of_file(wave_file(SAMPLES, expected)[:20], expected) is None, (
        "cut before it says what it is"
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 40, 3000, 20_000]))
def test_sound_is_no_file(seed: int, loud: int) -> None:
    noise = np.random.default_rng(seed).normal(0, loud, 480)
    for audio in (
        noise.clip(-32768, 32767).astype("<i2").tobytes(),
        bytes(960),
        b"\xff" * 960,
        b"\x7f" * 160,
    ):
        assert refusal_of_file(audio, PCM) is None
