"""Held-out sentences, spoken, with the times of their words as exact as espeak-ng tells them.

`speech_synthesis.py` lets a word last until the next one begins, which is all that training needs. Here a
word in front of a pause ends where it falls silent, and one behind a pause starts where it is first heard.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from speech_grammar import Language, load_grammar
from speech_synthesis import HELD_OUT_VOICES, SAMPLE_RATE_HZ, VOICES, Audio, Speaker, Studio, Word, in_a_room

QUIET = 0.02
"""Share of the peak below which clean speech is silent, as `Speaker.say` trims it."""
PAUSE_S = 0.08
"""A silence inside a sentence that is longer than a stop consonant's closure."""


@dataclass(frozen=True, slots=True)
class TimedRecording:
    """Audio at 16 kHz, its sentences joined by spaces, and its words.

    `is_known` says of each word whether espeak-ng reported it; "in the" and the like are one event, and
    the words in them are timed by their letters.
    """

    audio: Audio
    language: Language
    text: str
    words: tuple[Word, ...]
    is_known: tuple[bool, ...]


class TimingSpeaker(Speaker):
    """A `Speaker` whose words end at pauses, and that remembers which words had an event of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, tuple[bool, ...]] = {}

    def speak(
        self, text: str, voice: str, words_per_minute: int = 170, pitch: int = 50, spread: int = 50
    ) -> tuple[Audio, tuple[Word, ...]]:
        audio, words = super().speak(text, voice, words_per_minute, pitch, spread)
        offsets = [sum(len(word.text) + 1 for word in words[:index]) for index in range(len(words))]
        reported = {
            max(i for i, offset in enumerate(offsets) if offset <= at + 1) for at, _ in self._word_events
        }
        self.known[text] = tuple(index in reported or index == 0 for index in range(len(words)))
        return audio, _ended_at_pauses(audio, words)


def _ended_at_pauses(audio: Audio, words: tuple[Word, ...]) -> tuple[Word, ...]:
    loud = np.flatnonzero(np.abs(audio) > QUIET * np.abs(audio).max()) / SAMPLE_RATE_HZ
    timed: list[Word] = []
    start_s = words[0].start_s
    for index, word in enumerate(words):
        end_s = word.end_s
        loud_times = loud[(loud >= start_s) & (loud < end_s)]
        next_start_s = end_s
        if len(loud_times) and end_s - loud_times[-1] > PAUSE_S and index + 1 < len(words):
            next_start_s = float(loud[loud >= end_s][0])
            end_s = float(loud_times[-1])
        timed.append(Word(word.text, start_s, end_s))
        start_s = next_start_s
    return tuple(timed)


@dataclass(slots=True)
class TimingStudio:
    """Draws timed recordings; seed, language and index determine each."""

    seed: int
    studio: Studio = field(init=False)

    def __post_init__(self) -> None:
        self.studio = Studio(self.seed, TimingSpeaker())

    def recording(self, index: int, language: Language) -> TimedRecording:
        """One to three held-out sentences; every second recording by the voice no model has heard."""
        rng = random.Random(f"{self.seed}/timed/{language}/{index}")
        grammar = load_grammar(language)
        texts = [grammar.held_out_sentence(rng) for _ in range(1 + index // 2 % 3)]
        voice = HELD_OUT_VOICES[language] if index % 2 else rng.choice(VOICES[language])
        recording = in_a_room(self.studio.spoken(texts, language, voice, rng), rng)
        words = tuple(word for sentence in recording.sentences for word in sentence.words)
        speaker = self.studio.speaker
        assert isinstance(speaker, TimingSpeaker)
        known = [flag for text in texts[: len(recording.sentences)] for flag in speaker.known[text]]
        return TimedRecording(recording.audio, language, recording.text, words, tuple(known[: len(words)]))
