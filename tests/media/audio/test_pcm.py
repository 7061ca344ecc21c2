"""Bytes of a live stream become the samples they mean, and broken bytes a clear refusal."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.audio.pcm import PcmDecoder
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.shared.audio_format import AudioFormat, Encoding


def test_pcm16_is_little_endian_with_full_scale_one() -> None:
    samples = PcmDecoder(AudioFormat("pcm16", 24_000)).decode(b"\x00\x80\x00\x00\x00\x40\xff\x7f")[0]
    assert samples.dtype == np.float32
    assert samples.tolist() == [-1.0, 0.0, 0.5, 32767 / 32768]


@pytest.mark.parametrize(("encoding", "subtype"), [("pcmu", "ULAW"), ("pcma", "ALAW")])
def test_g711_agrees_with_libsndfile_for_every_code(encoding: Encoding, subtype: str) -> None:
    codes = bytes(range(256))
    expected, _ = soundfile.read(
        io.BytesIO(codes),
        dtype="float32",
        format="RAW",
        subtype=subtype,
        samplerate=8000,
        channels=1,
    )
    np.testing.assert_array_equal(PcmDecoder(AudioFormat(encoding, 8000)).decode(codes)[0], expected)


def test_g711_anchors_of_the_recommendation() -> None:
    mu_law = PcmDecoder(AudioFormat("pcmu", 8000)).decode(b"\xff\x7f\x80\x00")[0]
    assert mu_law.tolist() == [0.0, 0.0, 8031 / 8192, -8031 / 8192]
    a_law = PcmDecoder(AudioFormat("pcma", 8000)).decode(b"\xd5\x55\xaa\x2a")[0]
    assert a_law.tolist() == [1 / 4096, -1 / 4096, 4032 / 4096, -4032 / 4096]


def test_float32_passes_through_even_beyond_full_scale() -> None:
    values = np.array([0.0, -1.0, 1.5, 1e-30, 32767.0], np.float32)
    decoded = PcmDecoder(AudioFormat("float32", 16_000)).decode(values.tobytes())
    np.testing.assert_array_equal(decoded, values[None])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e7, -3e38])
def test_float32_that_is_no_audio_is_refused(bad: float) -> None:
    values = np.array([0.0, bad, 0.0], np.float32)
    with pytest.raises(BadRequestError, match="finite") as caught:
        PcmDecoder(AudioFormat("float32", 16_000)).decode(values.tobytes())
    assert (caught.value.code, caught.value.param) == ("invalid_audio", "audio")


@pytest.mark.parametrize(("encoding", "num_bytes"), [("pcm16", 3), ("float32", 5), ("float32", 6)])
def test_a_broken_sample_is_refused_naming_the_count(encoding: Encoding, num_bytes: int) -> None:
    decoder = PcmDecoder(AudioFormat(encoding, 16_000))
    with pytest.raises(BadRequestError, match=f"{num_bytes} bytes") as caught:
        decoder.decode(bytes(num_bytes))
    assert (caught.value.code, caught.value.param) == ("invalid_audio", "audio")
    assert decoder.decode(bytes(8))[0].tolist() == [0.0] * (8 // decoder.format.bytes_per_sample)


@settings(deadline=None, max_examples=50)
@given(data=st.binary(max_size=64), encoding=st.sampled_from(["pcm16", "pcmu", "pcma"]))
def test_any_whole_samples_decode_within_full_scale(data: bytes, encoding: Encoding) -> None:
    decoder = PcmDecoder(AudioFormat(encoding, 8000))
    size = decoder.format.bytes_per_sample
    samples = decoder.decode(memoryview(data)[: len(data) // size * size])[0]
    assert len(samples) == len(data) // size
    assert bool(np.all(np.abs(samples) <= 1.0))


def test_channels_are_taken_apart() -> None:
    decoder = PcmDecoder(AudioFormat("pcmu", 8_000, 3))
    apart = decoder.decode(bytes(range(12)))
    alone = PcmDecoder(AudioFormat("pcmu", 8_000)).decode(bytes(range(12)))[0]
    assert [row.tolist() for row in apart] == [alone[channel::3].tolist() for channel in range(3)]
    with pytest.raises(BadRequestError, match="3-byte"):
        decoder.decode(bytes(4))
