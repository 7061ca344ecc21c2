"""The recordings tiny-qwen3-asr is asked about: their text is in no training utterance, seed and kind decide.

`ORDERS` are kinds of phrases. Two of them no training utterance has: `shuffled` has the words of the
grammar's sentences in any order, `alternating` puts digits, weekdays, names and words in turn. `JOINED` are
utterances of 15 to 30 s, in one language or in all three.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from contexts import with_words
from open_text import KINDS, Kind, is_rare_held_out, open_texts, sentence_of
from speech_grammar import LANGUAGES, Language, load_grammar, number_words
from speech_synthesis import HELD_OUT_VOICES, SAMPLE_RATE_HZ, VOICES, Audio, Recording, Studio, in_a_room
from spoken_clips import spoken
from word_lists import load_words

NEVER_TRAINED: Final = ("shuffled", "alternating")
ORDERS: Final[tuple[str, ...]] = (*KINDS, *NEVER_TRAINED)
JOINED: Final = ("long", "languages")
LONG_S: Final = (15.0, 29.0)
NUM_STRANGERS: Final = 5
"""Keywords beside those that are said."""


@dataclass(frozen=True, slots=True)
class Question:
    """A recording, its text and the language it begins in; what one may be told of invented words."""

    audio: Audio
    text: str
    language: Language
    invented: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    prompt: str = ""


class Questions:
    """Makes the recordings; espeak-ng holds global state, so one in a process."""

    def __init__(self, words: Path, seed: int) -> None:
        self._seed = seed
        self._texts = open_texts(load_words(words))
        self._studio = Studio(seed)

    def of_kind(self, kind: str, count: int) -> list[Question]:
        """So many recordings in each language, one after the other."""
        return [self._question(kind, language, index) for index in range(count) for language in LANGUAGES]

    def joined(self, kind: str, count: int) -> list[Question]:
        """So many long recordings that begin in each language."""
        return [self._long(kind, language, index) for index in range(count) for language in LANGUAGES]

    def silent(self, count: int) -> list[Audio]:
        """Silence and noise."""
        rng = random.Random(f"{self._seed}/silent")
        return [self._studio.without_speech(rng).audio for _ in range(count)]

    def _question(self, kind: str, language: Language, index: int) -> Question:
        rng = random.Random(f"{self._seed}/question/{kind}/{language}/{index}")
        text = self._text(kind, language, rng)
        audio = self._in_a_room([self._speech_of(text, kind, language, index, rng)], language, rng)
        if kind != "rare":
            return Question(audio, text, language)
        invented = tuple(
            dict.fromkeys(word for word in text.rstrip(".").split() if self._is_invented(word, language))
        )
        words = self._texts[language]
        others = [words.invented.word(rng, held_out=True) for _ in range(NUM_STRANGERS)]
        keywords = sorted({*invented, *others})
        prompt = with_words(words.phrase("words", rng, held_out=True), invented, rng)
        return Question(audio, text, language, invented, tuple(keywords), prompt)

    def _long(self, kind: str, language: Language, index: int) -> Question:
        rng = random.Random(f"{self._seed}/question/{kind}/{language}/{index}")
        wanted = rng.uniform(*LONG_S) * SAMPLE_RATE_HZ
        parts: list[Audio] = []
        texts: list[str] = []
        spoken_in = language
        while True:
            text = self._text(rng.choice(KINDS), spoken_in, rng)
            part = self._speech_of(text, "words", spoken_in, index, rng)
            if parts and sum(map(len, parts)) + len(part) > wanted:
                break
            parts += [part, np.zeros(int(rng.uniform(0.1, 0.8) * SAMPLE_RATE_HZ), np.float32)]
            texts.append(text)
            if kind == "languages":
                spoken_in = rng.choice(LANGUAGES)
        return Question(self._in_a_room(parts, language, rng), " ".join(texts), language)

    def _text(self, kind: str, language: Language, rng: random.Random) -> str:
        words = self._texts[language]
        match kind:
            case "shuffled":
                sentence = words.phrase("grammar", rng, held_out=True)
                shuffled = [word.strip("¿?.,") for word in sentence.split()]
                rng.shuffle(shuffled)
                return sentence_of(shuffled, language)
            case "alternating":
                days = load_grammar(language).slots["day"]
                drawn_words: list[str] = []
                for _ in range(rng.randint(1, 3)):
                    digit = number_words(rng.randint(0, 9), language)
                    drawn_words += [
                        digit,
                        rng.choice(days),
                        rng.choice(words.lists.names),
                        *words.words(1, rng),
                    ]
                return sentence_of(drawn_words, language)
            case _:
                return words.phrase(_kind(kind), rng, held_out=True)

    def _speech_of(self, text: str, kind: str, language: Language, index: int, rng: random.Random) -> Audio:
        voice = HELD_OUT_VOICES[language] if index % 2 else rng.choice(VOICES[language])
        return spoken(text, _kind(kind), language, voice, rng, self._studio.speaker)[0]

    def _in_a_room(self, parts: Sequence[Audio], language: Language, rng: random.Random) -> Audio:
        silence = np.zeros(int(0.3 * SAMPLE_RATE_HZ), np.float32)
        audio = np.concatenate([silence, *parts, silence])
        return in_a_room(Recording(audio, language, ()), rng).audio

    def _is_invented(self, word: str, language: Language) -> bool:
        words = self._texts[language]
        known = {each.lower() for each in (*words.lists.names, *words.lists.variants)} | words.common
        return word.isalpha() and word.lower() not in known and is_rare_held_out(word)


def _kind(kind: str) -> Kind:
    return next((known for known in KINDS if known == kind), "words")
