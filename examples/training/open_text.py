"""What people may say beside the sentences of the grammar: words in any order, numbers, names, letters.

`OpenText` draws one phrase of a kind; every kind but `grammar` has no order of words that could be learned,
so what is heard has to decide. Phrases of four words and more are divided into those for training and those
for evaluation as the grammar's are. Needs `words.json` of `word_lists.py`; knows nothing of audio.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from speech_grammar import LANGUAGES, Language, is_held_out, load_grammar, number_words, ordinal_words
from word_lists import Words, hash_of

Kind = Literal["grammar", "words", "mixed", "digits", "numbers", "calendar", "spelled", "names", "rare"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
SHARES: Final[dict[Kind, float]] = {
    "grammar": 0.12,
    "words": 0.32,
    "mixed": 0.14,
    "digits": 0.06,
    "numbers": 0.07,
    "calendar": 0.05,
    "spelled": 0.06,
    "names": 0.08,
    "rare": 0.10,
}
"""How often each kind is drawn for training."""

QUESTION_SHARE: Final = 0.15
COMMA_SHARE: Final = 0.06
MAX_WORDS: Final = 14
RARE_HELD_OUT_ONE_IN: Final = 8
"""Invented words with such a hash are in no training phrase."""

_RANK_OFFSET, _RANK_POWER = 100, 0.6
"""A word of rank r is drawn like 1 / (r + offset) ** power: flatter than language, to learn the rare ones."""

_QUESTIONS: Final[dict[Language, tuple[str, ...]]] = {
    "en": ("What", "Where", "When", "Why", "How", "Who", "Is", "Do", "Can", "Did"),
    "es": ("Qué", "Dónde", "Cuándo", "Cómo", "Quién", "Por qué", "Es", "Puedes", "Cuál"),
    "de": ("Was", "Wo", "Wann", "Warum", "Wie", "Wer", "Ist", "Kannst du", "Haben", "Welche"),
}
_AND: Final[dict[Language, str]] = {"en": "and", "es": "y", "de": "und"}
_POINT: Final[dict[Language, str]] = {"en": "point", "es": "coma", "de": "Komma"}
_ALPHABETS: Final[dict[Language, str]] = {
    "en": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "es": "ABCDEFGHIJKLMNÑOPQRSTUVWXYZ",
    "de": "ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÜ",
}
SPOKEN_LETTERS: Final[dict[Language, dict[str, str]]] = {"en": {}, "es": {"Y": "i griega"}, "de": {}}
"""Letters that espeak-ng would not name, written as what is said instead."""


def sentence_of(words: Sequence[str], language: Language, *, question: bool = False) -> str:
    """The words with a capital and the mark that closes a sentence."""
    text = " ".join(words)
    text = text[0].upper() + text[1:]
    if question:
        return f"¿{text}?" if language == "es" else f"{text}?"
    return f"{text}."


class InventedWords:
    """Names that exist in no list: two letters decide about the next, as in the language's own words."""

    def __init__(self, words: Sequence[str]) -> None:
        self._known = {word.lower() for word in words}
        self._next: dict[str, list[str]] = defaultdict(list)
        for word in words:
            padded = f"^^{word.lower()}$"
            for index in range(2, len(padded)):
                self._next[padded[index - 2 : index]].append(padded[index])

    def word(self, rng: random.Random, *, held_out: bool) -> str:
        """Five to nine letters with a capital."""
        while True:
            text = "^^"
            while text[-1] != "$" and len(text) < 12:
                text += rng.choice(self._next[text[-2:]])
            word = text[2:-1]
            if (
                text[-1] == "$"
                and 5 <= len(word) <= 9
                and word not in self._known
                and word.isalpha()
                and is_rare_held_out(word) is held_out
            ):
                return word.capitalize()


def is_rare_held_out(word: str) -> bool:
    """Whether an invented word is reserved for evaluation."""
    return hash_of(word.lower()) % RARE_HELD_OUT_ONE_IN == 0


@dataclass(frozen=True, slots=True)
class OpenText:
    """Draws phrases of one language; the random generator decides everything."""

    language: Language
    lists: Words
    invented: InventedWords = field(init=False)
    common: frozenset[str] = field(init=False)
    _weights: list[float] = field(init=False)

    def __post_init__(self) -> None:
        ranks = range(len(self.lists.words))
        weights = [(rank + _RANK_OFFSET) ** -_RANK_POWER for rank in ranks]
        object.__setattr__(self, "common", frozenset(word.lower() for word in self.lists.words))
        object.__setattr__(self, "_weights", list(itertools.accumulate(weights)))
        object.__setattr__(self, "invented", InventedWords([*self.lists.words, *self.lists.names]))

    def phrase(self, kind: Kind, rng: random.Random, *, held_out: bool = False) -> str:
        """One phrase. Only one of three words or less may be both in training and in evaluation."""
        while True:
            text = self._drawn(kind, rng, held_out)
            if is_held_out(text) == held_out or (held_out and len(text.split()) < 4):
                return text

    def words(self, count: int, rng: random.Random) -> list[str]:
        """So many of the list's words."""
        return rng.choices(self.lists.words, cum_weights=self._weights, k=count)

    def _drawn(self, kind: Kind, rng: random.Random, held_out: bool) -> str:
        language = self.language
        match kind:
            case "grammar":
                return load_grammar(language).sentence(rng)
            case "words":
                words = self._with_commas(self.words(_length(rng), rng), rng)
                if rng.random() < QUESTION_SHARE:
                    return sentence_of([rng.choice(_QUESTIONS[language]), *words], language, question=True)
                return sentence_of(words, language)
            case "mixed":
                return sentence_of(self._mixed(rng), language)
            case "digits":
                count = rng.randint(1, 10)
                return sentence_of(
                    [number_words(rng.randint(0, 9), language) for _ in range(count)], language
                )
            case "numbers":
                return sentence_of(self._numbers(rng), language)
            case "calendar":
                return sentence_of(self._calendar(rng), language)
            case "spelled":
                return sentence_of(rng.choices(_ALPHABETS[language], k=rng.randint(2, 8)), language)
            case "names":
                return sentence_of(
                    self._joined(rng.choices(self.lists.names, k=rng.randint(1, 6)), rng), language
                )
            case "rare":
                words = self.words(rng.randint(2, 8), rng)
                for _ in range(rng.randint(1, 2)):
                    words[rng.randrange(len(words))] = self._rare(rng, held_out)
                return sentence_of(words, language)

    def _rare(self, rng: random.Random, held_out: bool) -> str:
        """Invented, or spelt in a way that cannot be heard."""
        if not held_out and rng.random() < 0.25:
            return rng.choice(self.lists.variants)
        return self.invented.word(rng, held_out=held_out)

    def _mixed(self, rng: random.Random) -> list[str]:
        words = self.words(_length(rng), rng)
        for _ in range(1 + len(words) // 4):
            words[rng.randrange(len(words))] = rng.choice(
                (
                    number_words(_number(rng), self.language),
                    number_words(rng.randint(0, 99), self.language),
                    rng.choice(self.lists.names),
                    rng.choice(load_grammar(self.language).slots["day"]),
                    rng.choice(load_grammar(self.language).slots["month"]),
                )
            )
        return words

    def _numbers(self, rng: random.Random) -> list[str]:
        spoken: list[str] = []
        for _ in range(rng.randint(1, 4)):
            spoken.append(number_words(_number(rng), self.language))
            match rng.randrange(6):
                case 0:
                    tail = [number_words(rng.randint(0, 9), self.language) for _ in range(rng.randint(1, 2))]
                    spoken += [_POINT[self.language], *tail]
                case 1 if self.language != "es":
                    spoken.append(ordinal_words(rng.randint(1, 31), self.language))
                case _:
                    pass
        return spoken

    def _calendar(self, rng: random.Random) -> list[str]:
        slots = load_grammar(self.language).slots
        names = [*slots["day"], *slots["month"]] if rng.random() < 0.3 else slots["day"]
        return self._joined(rng.choices(names, k=rng.randint(1, 7)), rng)

    def _joined(self, words: list[str], rng: random.Random) -> list[str]:
        if len(words) > 1 and rng.random() < 0.3:
            return [*words[:-1], _AND[self.language], words[-1]]
        return self._with_commas(words, rng)

    def _with_commas(self, words: list[str], rng: random.Random) -> list[str]:
        last = len(words) - 1
        return [f"{w}," if i < last and rng.random() < COMMA_SHARE else w for i, w in enumerate(words)]


def _length(rng: random.Random) -> int:
    return min(MAX_WORDS, 1 + int(rng.expovariate(1 / 5.5)))


def _number(rng: random.Random) -> int:
    return rng.randint(0, rng.choice((19, 99, 99, 999, 9_999)))


def drawn_kind(rng: random.Random) -> Kind:
    """A kind as often as `SHARES` says."""
    return rng.choices(KINDS, weights=[SHARES[kind] for kind in KINDS])[0]


def open_texts(lists: dict[Language, Words]) -> dict[Language, OpenText]:
    """One for each language."""
    return {language: OpenText(language, lists[language]) for language in LANGUAGES}
