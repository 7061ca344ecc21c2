"""Utterances of up to 30 s made from clips: joined, stretched, in noise, broken off as live audio is.

Everything happens on log-mel frames, so that an utterance costs a millisecond and no clip is heard twice in
the same way. Knows no model.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from speech_grammar import Language
from speech_synthesis import AUDIBLE_SHARE, SAMPLE_RATE_HZ, SENTENCE_END_S, Audio, noise
from spoken_clips import Clip, LogMel
from tiny_whisper_data import NUM_MELS, Frames, feature_extractor

LogMels = npt.NDArray[np.float32]

_MEL_HZ: Final = np.argmax(np.asarray(feature_extractor().mel_filters), axis=0) * (SAMPLE_RATE_HZ / 400)
"""The middle of each mel band."""

MAX_FRAMES: Final = 3_000
FRAMES_PER_S: Final = 100
SHORTEST_FRAMES: Final = 10
FLOOR: Final = -10.0
"""log10 of the energy that silence has."""

EXCERPT_SHARE: Final = 0.3
"""Of clips of which only some words are said: what comes next is then no grammar's to know."""
CUT_SHARE: Final = 0.25
NOISE_SHARE: Final = 0.65
TEMPO_SHARE, TEMPO_RANGE = 0.5, (0.85, 1.18)
TIMBRE_SHARE, TIMBRE_RANGE = 0.5, (0.94, 1.07)
"""Mel bands are moved by this factor, as a longer or shorter vocal tract does."""
GAIN_RANGE = (-0.4, 0.4)
"""Between clips, in log10 of energy."""
LEVEL_RANGE = (-2.4, 0.5)
SNR_RANGE = (0.8, 4.0)
"""Speech above noise, in log10 of energy: 8 to 40 dB."""

TELEPHONE_SHARE: Final = 0.35
TELEPHONE_TOP_HZ, TELEPHONE_BOTTOM_HZ = (3_300, 4_000), (80, 320)
"""Where a telephone's band ends; what is outside is weaker by these, in log10 of energy."""
TELEPHONE_ABOVE, TELEPHONE_BELOW = (3.0, 9.0), (0.0, 2.5)
TELEPHONE_NOISE = (2.8, 4.2)
"""Of its few bits, below the speech of each frame, in log10 of energy."""

_NOISE_S, _NUM_NOISES, _NUM_TUNES = 31, 10, 4


@dataclass(frozen=True, slots=True)
class Utterance:
    """Raw log10 mel frames [frames, mels], what was said until their end, and the language it began in."""

    frames: LogMels
    text: str
    language: Language | None


class Noises:
    """Noise and tunes to draw from, as log-mel frames of mean energy 1."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"{seed}/noises")
        log_mel = LogMel()
        num_samples = _NOISE_S * SAMPLE_RATE_HZ
        self._all = [_normal(log_mel(0.1 * noise(num_samples, rng))) for _ in range(_NUM_NOISES)]
        self._all += [_normal(log_mel(0.1 * tune(num_samples, rng))) for _ in range(_NUM_TUNES)]

    def drawn(self, num_frames: int, rng: random.Random) -> LogMels:
        """So many frames from somewhere in one of them, a little brighter or darker."""
        whole = rng.choice(self._all)
        start = rng.randint(0, len(whole) - num_frames)
        tilt = np.linspace(0, rng.uniform(-1, 1), NUM_MELS, dtype=np.float32)
        return whole[start : start + num_frames] + tilt


def tune(num_samples: int, rng: random.Random) -> Audio:
    """Chords of plucked tones, root mean square 1: sound with pitch and rhythm in which nobody speaks."""
    wave = np.zeros(num_samples, np.float32)
    start = 0
    while start < num_samples:
        length = int(rng.uniform(0.15, 0.8) * SAMPLE_RATE_HZ)
        time_s = np.arange(min(2 * length, num_samples - start)) / SAMPLE_RATE_HZ
        for _ in range(rng.randint(1, 3)):
            pitch_hz = 110 * 2 ** (rng.randint(0, 36) / 12)
            tones = sum(np.sin(2 * np.pi * k * pitch_hz * time_s) / k for k in range(1, rng.randint(2, 7)))
            wave[start : start + len(time_s)] += tones * np.exp(-time_s * rng.uniform(1, 8))
        start += length
    return np.asarray(wave / np.sqrt(np.mean(wave**2)), np.float32)


def joined(parts: Sequence[tuple[Clip, Frames]], noises: Noises, rng: random.Random) -> Utterance:
    """The clips behind each other with pauses between; what would pass `MAX_FRAMES` is left out."""
    lead = rng.randint(0, 70) if rng.random() < 0.9 else rng.randint(70, 300)
    pieces = [_silence(lead)]
    position = lead
    words: list[tuple[str, float, float]] = []
    for whole, all_frames in parts:
        clip, stored = (
            excerpt(whole, all_frames, rng) if rng.random() < EXCERPT_SHARE else (whole, all_frames)
        )
        frames, stretch = _varied(stored, rng)
        if position + len(frames) > MAX_FRAMES and words:
            break
        begin_s = position / FRAMES_PER_S
        words += [
            (text, begin_s + start * stretch, begin_s + end * stretch) for text, start, end in clip.words
        ]
        pause = _silence(rng.randint(5, 30) if rng.random() < 0.5 else rng.randint(20, 110))
        pieces += [frames, pause]
        position += len(frames) + len(pause)
    pieces[-1] = _silence(rng.randint(0, 120))
    frames = np.concatenate(pieces)[:MAX_FRAMES]
    if rng.random() < CUT_SHARE:
        frames = frames[: _cut(words, rng)]
    text = spoken_until(words, len(frames) / FRAMES_PER_S)
    audible = _in_noise(frames, noises, rng)
    if rng.random() < TELEPHONE_SHARE:
        audible = by_telephone(audible, rng)
    return Utterance(audible, text, parts[0][0].language if text else None)


def excerpt(clip: Clip, frames: Frames, rng: random.Random) -> tuple[Clip, Frames]:
    """Some of the clip's words in a row, written as a sentence of their own; one of a single word stays."""
    if len(clip.words) < 2:
        return clip, frames
    count = rng.randint(1, len(clip.words) - 1)
    start = rng.randint(0, len(clip.words) - count)
    words = clip.words[start : start + count]
    first = int(words[0][1] * FRAMES_PER_S)
    last = min(len(frames), math.ceil(words[-1][2] * FRAMES_PER_S))
    if last - first < SHORTEST_FRAMES:
        return clip, frames
    # The voice still rises at a question's end, and a Spanish one is opened where it begins.
    asks = start + count == len(clip.words) and words[-1][0].endswith("?")
    texts = [text for text, _, _ in words]
    opening = "¿" if asks and clip.language == "es" else ""
    texts[0] = texts[0].lstrip("¿")
    texts[0] = f"{opening}{texts[0][:1].upper()}{texts[0][1:]}"
    texts[-1] = texts[-1].rstrip(".,?!") + ("?" if asks else ".")
    moved = [
        (text, start_s - first / FRAMES_PER_S, end_s - first / FRAMES_PER_S)
        for text, (_, start_s, end_s) in zip(texts, words, strict=True)
    ]
    return msgspec.structs.replace(clip, num_frames=last - first, words=moved), frames[first:last]


def without_speech(noises: Noises, rng: random.Random) -> Utterance:
    """Silence, noise or a tune."""
    num_frames = rng.randint(30, rng.choice((300, 800, 2_000)))
    frames = _silence(num_frames)
    if rng.random() > 0.15:
        frames = np.maximum(noises.drawn(num_frames, rng) + np.float32(rng.uniform(-7, 1)), np.float32(FLOOR))
    return Utterance(frames, "", None)


def by_telephone(frames: LogMels, rng: random.Random) -> LogMels:
    """The same through G.711: without what a telephone's band leaves out, with the noise of its few bits."""
    loss = np.zeros(NUM_MELS, np.float32)
    loss[rng.uniform(*TELEPHONE_TOP_HZ) < _MEL_HZ] = rng.uniform(*TELEPHONE_ABOVE)
    loss[rng.uniform(*TELEPHONE_BOTTOM_HZ) > _MEL_HZ] = rng.uniform(*TELEPHONE_BELOW)
    energy = np.power(np.float32(10), frames).sum(axis=1, keepdims=True) / NUM_MELS
    noise = np.log10(energy + np.float32(1e-10)) - np.float32(rng.uniform(*TELEPHONE_NOISE))
    audible = np.log10(np.power(np.float32(10), frames) + np.power(np.float32(10), noise))
    return np.asarray(np.maximum(audible - loss, FLOOR), np.float32)


def spoken_until(words: Sequence[tuple[str, float, float]], at_s: float) -> str:
    """What a listener has heard by then: whole words, and a full stop only once the voice has paused."""
    audible = [word for word in words if at_s >= word[1] + AUDIBLE_SHARE * (word[2] - word[1])]
    text = " ".join(word for word, _, _ in audible)
    if audible and at_s < audible[-1][2] + SENTENCE_END_S:
        text = text.rstrip(".,?!")
    return text


def _cut(words: Sequence[tuple[str, float, float]], rng: random.Random) -> int:
    """The frame to break off at: anywhere in the speech, sometimes before the first word is complete."""
    first, last = words[0], words[-1]
    if rng.random() < 0.12:
        at_s = rng.uniform(0.3, max(0.35, first[2]))
    else:
        at_s = rng.uniform(first[1] + 0.2, last[2] + 0.2)
    return max(30, int(at_s * FRAMES_PER_S))


def _varied(stored: Frames, rng: random.Random) -> tuple[LogMels, float]:
    """The clip at another pace, timbre and level, and by how much its times are stretched."""
    frames = np.array(stored, np.float32)
    stretch = 1.0
    if rng.random() < TEMPO_SHARE:
        length = max(2, round(len(frames) / rng.uniform(*TEMPO_RANGE)))
        stretch = length / len(frames)
        frames = _resampled(frames, np.linspace(0, len(frames) - 1, length))
    if rng.random() < TIMBRE_SHARE:
        bands = np.arange(NUM_MELS) * rng.uniform(*TIMBRE_RANGE)
        frames = _resampled(frames.T, np.minimum(bands, NUM_MELS - 1)).T
    return np.maximum(frames + np.float32(rng.uniform(*GAIN_RANGE)), np.float32(FLOOR)), stretch


def _resampled(rows: LogMels, positions: npt.NDArray[np.float64]) -> LogMels:
    """Rows at fractional positions, linearly between neighbours."""
    low = np.minimum(positions.astype(np.int64), len(rows) - 2)
    share = (positions - low).astype(np.float32)[:, None]
    return np.asarray(rows[low] * (1 - share) + rows[low + 1] * share, np.float32)


def _in_noise(frames: LogMels, noises: Noises, rng: random.Random) -> LogMels:
    level = np.float32(rng.uniform(*LEVEL_RANGE))
    if rng.random() < NOISE_SHARE:
        speech = np.log10(np.power(np.float32(10), frames).sum() / len(frames) + 1e-10)
        added = noises.drawn(len(frames), rng) + np.float32(speech - rng.uniform(*SNR_RANGE))
        frames = np.log10(np.power(np.float32(10), frames) + np.power(np.float32(10), added))
    return np.asarray(np.maximum(frames + level, FLOOR), np.float32)


def _normal(frames: Frames) -> LogMels:
    logs = np.array(frames, np.float32)
    return logs - np.float32(np.log10(np.power(10.0, logs).sum() / len(logs)))


def _silence(num_frames: int) -> LogMels:
    return np.full((num_frames, NUM_MELS), FLOOR, np.float32)
