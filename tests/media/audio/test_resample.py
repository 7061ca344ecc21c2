"""A resampled stream is the same however it is cut, has the right length, and keeps what is audible."""

from __future__ import annotations

from itertools import pairwise

import av
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.audio.resample import StreamingResampler

FloatArray = npt.NDArray[np.float32]
RATES = [8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000]


def noise(num_samples: int) -> FloatArray:
    return np.random.default_rng(num_samples).standard_normal(num_samples).astype(np.float32) * np.float32(
        0.1
    )


def whole(samples: FloatArray, rate: int) -> FloatArray:
    return StreamingResampler(rate).push(samples, last=True)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("num_samples", [0, 1, 2, 3, 100, 12_345, 48_000])
def test_length_is_that_of_the_same_time(rate: int, num_samples: int) -> None:
    assert abs(len(whole(noise(num_samples), rate)) - num_samples * 16_000 / rate) <= 1


@settings(deadline=None, max_examples=60)
@given(
    rate=st.sampled_from(RATES),
    sizes=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 3000)), max_size=12),
    tail=st.booleans(),
)
def test_any_chunking_gives_the_whole(rate: int, sizes: list[int], tail: bool) -> None:
    samples = noise(sum(sizes))
    stream = StreamingResampler(rate)
    cuts = np.cumsum([0, *sizes])
    outputs = [
        stream.push(samples[start:end], last=not tail and index == len(sizes) - 1)
        for index, (start, end) in enumerate(pairwise(cuts))
    ]
    if tail or not sizes:
        outputs.append(stream.push(samples[:0], last=True))
    np.testing.assert_array_equal(np.concatenate(outputs), whole(samples, rate))


@pytest.mark.parametrize("rate", [8_000, 24_000, 44_100])
def test_one_sample_at_a_time(rate: int) -> None:
    samples = noise(1500)
    stream = StreamingResampler(rate)
    outputs = [stream.push(samples[i : i + 1], last=i == len(samples) - 1) for i in range(len(samples))]
    np.testing.assert_array_equal(np.concatenate(outputs), whole(samples, rate))


@pytest.mark.parametrize("rate", [r for r in RATES if r != 16_000])
def test_a_tone_stays_the_tone(rate: int) -> None:
    source = np.sin(2 * np.pi * 1000 * np.arange(rate) / rate).astype(np.float32)
    output = whole(source, rate)
    expected = np.sin(2 * np.pi * 1000 * np.arange(len(output)) / 16_000)
    np.testing.assert_allclose(output[800:-800], expected[800:-800], atol=1e-4)


def test_what_16_khz_cannot_hold_is_filtered_out() -> None:
    source = np.sin(2 * np.pi * 10_000 * np.arange(48_000) / 48_000).astype(np.float32)
    assert float(np.abs(whole(source, 48_000)[800:-800]).max()) < 1e-4


@pytest.mark.parametrize(("rate", "bound_ms"), [(8_000, 31), (16_000, 0), (24_000, 40), (48_000, 40)])
def test_lag_stays_below_its_stated_bound(rate: int, bound_ms: int) -> None:
    stream = StreamingResampler(rate)
    num_output = 0
    for step in range(1, 101):
        num_output += len(stream.push(noise(rate // 50)))
        assert step * 20 - num_output / 16 <= bound_ms


def test_an_ended_stream_takes_no_more() -> None:
    stream = StreamingResampler(24_000)
    stream.push(noise(10), last=True)
    with pytest.raises(ValueError, match="ended"):
        stream.push(noise(10))


@pytest.mark.parametrize("rate", [0, -8000])
def test_impossible_rates_are_refused(rate: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        StreamingResampler(rate)


@pytest.mark.parametrize("rate", [8_000, 24_000, 44_100, 48_000])
def test_it_equals_another_resampler(rate: int) -> None:
    """ffmpeg's, on what both must pass: up to 3 kHz."""
    times = np.arange(rate) / rate
    tones = sum(np.sin(2 * np.pi * hz * times + hz) for hz in (180, 440, 1_250, 3_000)) / 8
    samples = np.asarray(tones * np.hanning(rate), np.float32)
    frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
    frame.sample_rate = rate
    other = av.AudioResampler("flt", "mono", 16_000)
    expected = np.concatenate(
        [part.to_ndarray()[0] for each in (frame, None) for part in other.resample(each)]
    )
    np.testing.assert_allclose(whole(samples, rate), expected, rtol=0, atol=1e-4)
