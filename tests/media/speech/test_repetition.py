"""Copies of an utterance are counted in the sound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sensorium.media.speech.repetition import count_copies
from support.timed_speech import LANGUAGES, timed_speech

RATE = 16_000
Samples = np.ndarray[tuple[int], np.dtype[np.float32]]


def spoken(language: str, least_s: float) -> list[Samples]:
    """The words of a recording that last so long."""
    speech = timed_speech(language)
    long = [word for word in speech.words if word.end - word.start >= least_s]
    return [speech.samples[round(word.start * RATE) : round(word.end * RATE)] for word in long]


def repeated(
    word: Samples, count: int, pause_s: float, spread: float
) -> tuple[Samples, list[tuple[int, int]]]:
    """A word so often, each copy up to `spread` faster or slower, and where it is said."""
    generator = np.random.default_rng(count)
    pieces, speech, place = [np.zeros(4_000, np.float32)], list[tuple[int, int]](), 4_000
    for _ in range(count):
        tempo = 1.0 + generator.uniform(-spread, spread)
        places = np.arange(0, len(word) - 1, tempo)
        copy = np.interp(places, np.arange(len(word)), word).astype(np.float32)
        pieces += [copy, np.zeros(round(pause_s * RATE), np.float32)]
        speech.append((place, place + len(copy)))
        place += len(copy) + round(pause_s * RATE)
    if not pause_s:
        speech = [(speech[0][0], speech[-1][1])]
    samples: Samples = np.concatenate(pieces)
    return samples, speech


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("pause_s", [0.0, 0.2])
@pytest.mark.parametrize("spread", [0.0, 0.06])
def test_words_are_counted_with_pauses_and_in_one_breath(
    language: str, pause_s: float, spread: float
) -> None:
    found = []
    for word, count in itertools.product(spoken(language, 0.3)[:4], (4, 9, 16)):
        samples, speech = repeated(word, count, pause_s, spread)
        found.append((count_copies(samples, speech, round(1.3 * count) + 1), count))
    wrong = [(copies, count) for copies, count in found if copies is not None and copies != count]
    unclear = sum(copies is None for copies, _ in found)
    assert not wrong
    assert unclear <= len(found) // 6


def test_a_longer_pause_is_no_copy() -> None:
    """Card numbers are said in groups."""
    for word in spoken("en", 0.3)[:4]:
        samples, speech = repeated(word, 8, 0.08, 0.0)
        place = speech[3][1]
        pause = 8_000
        samples = np.concatenate((samples[:place], np.zeros(pause, np.float32), samples[place:]))
        speech = speech[:4] + [(start + pause, end + pause) for start, end in speech[4:]]
        assert count_copies(samples, speech, 11) == 8


def test_no_more_are_counted_than_are_asked_for() -> None:
    samples, speech = repeated(spoken("en", 0.3)[0], 9, 0.2, 0.0)
    assert count_copies(samples, speech, 9) == 9
    assert count_copies(samples, speech, 1) is None
    assert count_copies(samples, [], 9) is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_no_repetition_has_no_period(language: str) -> None:
    speech = timed_speech(language)
    for most in (4, 8, 20):
        assert count_copies(speech.samples, [(0, len(speech.samples))], most) is None
    noise = np.random.default_rng(1).standard_normal(8 * RATE).astype(np.float32)
    assert count_copies(noise, [(0, len(noise))], 12) is None


def test_very_short_speech_has_no_period() -> None:
    for length in (1, 160, 1_000, 4_000):
        assert count_copies(np.ones(length, np.float32), [(0, length)], 5) is None
