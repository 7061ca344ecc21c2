"""What befalls speech on its way to a microphone and from there: noise, rooms, codecs. The same every time.

Samples are mono at 16 kHz, full scale 1. `human_mixes.py` makes recordings with them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import cast

import av
import av.filter
import numpy as np
import soxr
from numpy.typing import NDArray

RATE_HZ = 16_000
Samples = NDArray[np.float32]
_TICK = Fraction(1, RATE_HZ)


def silence(seconds: float) -> Samples:
    """Digital silence."""
    return np.zeros(round(seconds * RATE_HZ), np.float32)


def pink_noise(count: int, seed: int) -> Samples:
    """Noise of unit power that falls by 3 dB an octave from 20 Hz on."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(count))
    frequencies = np.maximum(np.fft.rfftfreq(count, 1 / RATE_HZ), 20.0)
    noise: Samples = np.fft.irfft(spectrum / np.sqrt(frequencies), count).astype(np.float32)
    return noise / float(noise.std())


def with_sound(samples: Samples, sound: Samples, decibels: float) -> Samples:
    """A sound, repeated, so far under the speech; the power of silence does not count."""
    loud = np.abs(samples) > 0.01 * np.abs(samples).max()
    power = float(np.mean(samples[loud].astype(np.float64) ** 2))
    others = float(np.mean(sound.astype(np.float64) ** 2))
    gain = np.float32(np.sqrt(power / others / 10 ** (decibels / 10)))
    return samples + gain * np.resize(sound, len(samples))


def with_noise(samples: Samples, decibels: float, seed: int) -> Samples:
    """Pink noise so far under the speech."""
    return with_sound(samples, pink_noise(len(samples), seed), decibels)


def with_peak(samples: Samples, decibels: float) -> Samples:
    """The same, so loud at its loudest (dB of full scale)."""
    return samples * float(10 ** (decibels / 20) / np.abs(samples).max())


def over_telephone(samples: Samples) -> Samples:
    """8 kHz of G.711 µ-law, and back to 16 kHz: 8 bits a sample, companded by 255."""
    narrow = soxr.resample(samples, RATE_HZ, 8000)
    companded = np.sign(narrow) * np.log1p(255 * np.minimum(np.abs(narrow), 1)) / np.log(256)
    coded = np.round(companded * 127) / 127
    degraded = np.sign(coded) * np.expm1(np.abs(coded) * np.log(256)) / 255
    wide = soxr.resample(degraded.astype(np.float32), 8000, RATE_HZ)
    return np.resize(wide, len(samples)).astype(np.float32)


def over_opus(samples: Samples, bit_rate: int = 8_000) -> Samples:
    """Opus at so few bits a second, and back."""
    coded = io.BytesIO()
    with av.open(coded, "w", format="ogg") as container:
        stream = cast(av.AudioStream, container.add_stream("libopus", rate=RATE_HZ, layout="mono"))
        stream.bit_rate = bit_rate
        container.mux(stream.encode(_frame(samples)))
        container.mux(stream.encode(None))
    coded.seek(0)
    resampler = av.AudioResampler("flt", "mono", RATE_HZ)
    with av.open(coded) as container:
        frames = [*container.decode(audio=0), None]
    degraded = np.concatenate(
        [each.to_ndarray()[0] for frame in frames for each in resampler.resample(frame)]
    )
    return np.resize(degraded, len(samples)).astype(np.float32)


def at_tempo(samples: Samples, tempo: float) -> Samples:
    """Said so many times as fast, at the same pitch (WSOLA, as ffmpeg's `atempo`)."""
    graph = av.filter.Graph()
    source = graph.add_abuffer(sample_rate=RATE_HZ, format="flt", layout="mono", time_base=_TICK)
    changed, sink = graph.add("atempo", str(tempo)), graph.add("abuffersink")
    graph.link_nodes(source, changed, sink).configure()
    source.push(_frame(samples))
    source.push(None)
    degraded: list[Samples] = []
    while True:
        try:
            degraded.append(cast(av.AudioFrame, sink.pull()).to_ndarray()[0])
        except (EOFError, BlockingIOError):
            return np.concatenate(degraded).astype(np.float32)


def _frame(samples: Samples) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[None]), format="flt", layout="mono")
    frame.sample_rate, frame.time_base, frame.pts = RATE_HZ, _TICK, 0
    return frame


def with_reverberation(samples: Samples, seed: int, decay_s: float = 0.6, tail_gain: float = 0.5) -> Samples:
    """A room: direct sound and a tail of noise that falls by 60 dB in `decay_s`."""
    count = round(decay_s * RATE_HZ)
    tail = np.random.default_rng(seed).standard_normal(count) * 10 ** (-3 * np.arange(count) / count)
    tail[: round(0.005 * RATE_HZ)] = 0
    answer = tail_gain * tail / np.sqrt(np.sum(tail**2))
    answer[0] = 1.0
    size = len(samples) + count
    degraded = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(answer, size), size)[: len(samples)]
    return (degraded / max(1.0, float(np.abs(degraded).max()))).astype(np.float32)


def far_away(samples: Samples, seed: int) -> Samples:
    """A microphone across the room, which is louder than the speaker, and noise 15 dB under both."""
    return with_noise(with_reverberation(samples, seed, decay_s=0.8, tail_gain=1.2), 15, seed)


def laughter(seconds: float, seed: int) -> Samples:
    """Bursts of voiced noise, five a second in bouts of about a second, as laughter sounds."""
    generator = np.random.default_rng(seed)
    pieces: list[Samples] = []
    while sum(map(len, pieces)) < seconds * RATE_HZ:
        pitch_hz = generator.uniform(180, 320)
        for number in range(generator.integers(4, 8)):
            time = np.arange(round(0.13 * RATE_HZ)) / RATE_HZ
            phase = 2 * np.pi * pitch_hz * (1 - 0.04 * number) * time
            voice = np.sum([np.sin(n * phase) / n for n in range(1, 9)], axis=0)
            burst = (voice + generator.standard_normal(len(time))) * np.sin(np.pi * time / 0.13)
            pieces += [(0.05 * burst).astype(np.float32), silence(0.07)]
        pieces.append(silence(generator.uniform(0.5, 1.5)))
    return np.concatenate(pieces)[: round(seconds * RATE_HZ)]


def hum(seconds: float) -> Samples:
    """Mains and its overtones."""
    time = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    waves = [np.sin(2 * np.pi * 50 * n * time) / n for n in range(1, 12)]
    sound: Samples = (0.05 * np.sum(waves, axis=0)).astype(np.float32)
    return sound


def bursts(seconds: float, seed: int, *, a_second: float, decay_s: float, lowest_hz: float) -> Samples:
    """Noise above `lowest_hz` that sets in so often a second, at random, and decays by 60 dB in `decay_s`."""
    generator, count = np.random.default_rng(seed), round(seconds * RATE_HZ)
    hits = np.zeros(count)
    places = generator.integers(0, count, round(a_second * seconds))
    np.add.at(hits, places, generator.uniform(0.2, 1.0, len(places)))
    length = round(decay_s * RATE_HZ)
    size = count + length
    decay = np.fft.rfft(10 ** (-3 * np.arange(length) / length), size)
    envelope = np.maximum(np.fft.irfft(np.fft.rfft(hits, size) * decay, size)[:count], 0.0)
    noise = np.fft.rfft(generator.standard_normal(count))
    noise[np.fft.rfftfreq(count, 1 / RATE_HZ) < lowest_hz] = 0
    sound: Samples = (envelope * np.fft.irfft(noise, count)).astype(np.float32)
    sound *= np.float32(0.3 / float(np.abs(sound).max()))
    return sound


def breath(seconds: float, seed: int) -> Samples:
    """Somebody near the microphone breathes every four seconds."""
    time = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    envelope = np.maximum(np.sin(2 * np.pi * time / 2.0), 0.0) ** 2
    return (0.03 * envelope * pink_noise(len(time), seed)).astype(np.float32)


def coughs(seconds: float, seed: int) -> Samples:
    """Two or three coughs in a row: a burst of noise, then a hoarse voice that fades."""
    generator, pieces = np.random.default_rng(seed), list[Samples]()
    time = np.arange(round(0.3 * RATE_HZ)) / RATE_HZ
    while sum(map(len, pieces)) < seconds * RATE_HZ:
        for _ in range(generator.integers(2, 4)):
            voice = np.sum([np.sin(2 * np.pi * 140 * n * time) / n for n in range(1, 12)], axis=0)
            sound = generator.standard_normal(len(time)) * np.exp(-time / 0.05) + 0.3 * voice * np.exp(
                -time / 0.09
            )
            pieces += [(0.15 * sound).astype(np.float32), silence(0.2)]
        pieces.append(silence(generator.uniform(1.0, 3.0)))
    return np.concatenate(pieces)[: round(seconds * RATE_HZ)]


def backwards_crowd(voices: Sequence[Samples], seconds: float, side_by_side: int = 4) -> Samples:
    """Voices that are played backwards, so many at once: as loud as speech, and no word in it."""
    count = round(seconds * RATE_HZ)
    rows = [
        np.resize(np.concatenate([voice[::-1] for voice in voices[first::side_by_side]]), count)
        for first in range(side_by_side)
    ]
    mixed: Samples = np.sum(rows, axis=0).astype(np.float32)
    mixed *= np.float32(0.5 / float(np.abs(mixed).max()))
    return mixed


NOT_SPEECH: dict[str, Callable[[float], Samples]] = {
    "hum": hum,
    "noise": lambda seconds: 0.05 * pink_noise(round(seconds * RATE_HZ), seed=5),
    "keys": lambda seconds: bursts(seconds, 1, a_second=6, decay_s=0.03, lowest_hz=1500),
    "applause": lambda seconds: bursts(seconds, 2, a_second=150, decay_s=0.04, lowest_hz=500),
    "breath": lambda seconds: breath(seconds, 3),
    "coughs": lambda seconds: coughs(seconds, 4),
    "laughter": lambda seconds: laughter(seconds, 6),
}
"""Sounds of so many seconds in which nobody says a word."""
