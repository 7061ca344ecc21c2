"""Audio in which nobody speaks, and audio that upsets features: deterministic, mono, float32 at 16 kHz."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
RATE = 16_000


def _clipped(samples: npt.NDArray[np.float64]) -> FloatArray:
    return np.clip(samples, -1.0, 1.0).astype(np.float32)


def _times(seconds: float) -> npt.NDArray[np.float64]:
    return np.arange(round(seconds * RATE)) / RATE


def digital_silence(seconds: float) -> FloatArray:
    """Zeros."""
    return np.zeros(round(seconds * RATE), np.float32)


def white_noise(seconds: float, *, level_db: float, seed: int = 0) -> FloatArray:
    """Gaussian noise of a root mean square in dB of full scale."""
    noise = np.random.default_rng(seed).standard_normal(round(seconds * RATE))
    return _clipped(noise * 10 ** (level_db / 20))


def pink_noise(seconds: float, *, level_db: float, seed: int = 0) -> FloatArray:
    """Noise that falls by 3 dB an octave: rooms, traffic, fans."""
    noise = np.random.default_rng(seed).standard_normal(round(seconds * RATE))
    spectrum = np.fft.rfft(noise)
    spectrum /= np.sqrt(np.maximum(np.fft.rfftfreq(len(noise), 1 / RATE), 20.0))
    shaped = np.fft.irfft(spectrum, len(noise))
    return _clipped(shaped / np.sqrt(np.mean(shaped**2)) * 10 ** (level_db / 20))


def hum(seconds: float, *, level_db: float) -> FloatArray:
    """Mains: 50 Hz and its harmonics."""
    times = _times(seconds)
    waves = sum(np.sin(2 * np.pi * 50 * k * times + k) / k for k in range(1, 13))
    return _clipped(waves / np.sqrt(np.mean(waves**2)) * 10 ** (level_db / 20))


def clicks(seconds: float, *, seed: int = 0) -> FloatArray:
    """About three short clicks a second, as of keys and plugs, over a faint noise."""
    rng = np.random.default_rng(seed)
    samples = 1e-4 * rng.standard_normal(round(seconds * RATE))
    decay = np.exp(-np.arange(80) / 12)
    for place in rng.integers(0, max(1, len(samples) - 80), size=round(3 * seconds)):
        part = samples[place : place + 80]
        part += (0.5 * decay * rng.choice([-1, 1]))[: len(part)]
    return _clipped(samples)


def chords(seconds: float, *, level_db: float = -20) -> FloatArray:
    """Music of a kind: a chord every half second, each tone with overtones that die away."""
    times = _times(seconds)
    samples = np.zeros(len(times))
    for index in range(round(seconds * 2)):
        since = times - index / 2
        envelope = np.where(since >= 0, np.exp(-3 * np.maximum(since, 0)), 0)
        for semitones in ((0, 4, 7), (5, 9, 12), (7, 11, 14), (0, 4, 7))[index % 4]:
            pitch = 196 * 2 ** (semitones / 12)
            samples += envelope * sum(np.sin(2 * np.pi * pitch * k * times) / k**2 for k in (1, 2, 3, 4))
    return _clipped(samples / np.sqrt(np.mean(samples**2) + 1e-12) * 10 ** (level_db / 20))


def silence_then_shout(seconds: float, *, seed: int = 0) -> FloatArray:
    """Two thirds near silence, then a loud voiced sound: lifts the floor under all earlier frames."""
    samples = white_noise(seconds, level_db=-90, seed=seed).astype(np.float64)
    start = len(samples) * 2 // 3
    times = np.arange(len(samples) - start) / RATE
    pitch = 220 + 60 * np.sin(2 * np.pi * 1.5 * times)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    samples[start:] += 0.3 * sum(np.sin(k * phase) / k for k in range(1, 16))
    return _clipped(samples)


WITHOUT_SPEECH: dict[str, Callable[[float], FloatArray]] = {
    "digital silence": digital_silence,
    "near zero": lambda seconds: white_noise(seconds, level_db=-90),
    "faint white": lambda seconds: white_noise(seconds, level_db=-60),
    "white": lambda seconds: white_noise(seconds, level_db=-35),
    "loud white": lambda seconds: white_noise(seconds, level_db=-12),
    "faint pink": lambda seconds: pink_noise(seconds, level_db=-60),
    "pink": lambda seconds: pink_noise(seconds, level_db=-35),
    "loud pink": lambda seconds: pink_noise(seconds, level_db=-15),
    "faint hum": lambda seconds: hum(seconds, level_db=-55),
    "hum": lambda seconds: hum(seconds, level_db=-25),
    "clicks": clicks,
    "chords": chords,
}
"""By name: so many seconds of a signal in which nobody says a word."""
