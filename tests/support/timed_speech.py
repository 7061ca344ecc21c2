"""A few seconds of generated speech with the times of its words.

`examples/benchmarks/word_times.py --save` made it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
from sensorium.protocols.transcription.transcript import Word

_FOLDER = Path(__file__).parents[1] / "data" / "timed_speech"
LANGUAGES = ("en", "es", "de")


@dataclass(frozen=True, slots=True)
class TimedSpeech:
    """Mono samples at 16 kHz [n] and what is said in them."""

    samples: npt.NDArray[np.float32]
    text: str
    words: tuple[Word, ...]


def timed_speech(language: str) -> TimedSpeech:
    """The recording of a language."""
    samples, rate = soundfile.read(_FOLDER / f"{language}.flac", dtype="float32")
    assert rate == 16_000
    described = json.loads((_FOLDER / "words.json").read_text("utf-8"))[language]
    return TimedSpeech(samples, described["text"], tuple(Word(*word) for word in described["words"]))


def mean_error_s(found: tuple[Word, ...], true: tuple[Word, ...]) -> float:
    """Mean distance of all starts and ends; the words must be the same."""
    assert [word.word for word in found] == [word.word for word in true]
    pairs = zip(found, true, strict=True)
    return float(np.mean([(abs(a.start - b.start), abs(a.end - b.end)) for a, b in pairs]))
