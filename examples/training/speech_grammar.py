"""Sentences to speak: a seedable random grammar for English, Spanish and German.

The sentences are templates over word lists in `grammars/*.txt`; numbers come as words
because a recogniser should learn what is said, not how it is abbreviated. About one
sentence in twelve is reserved for evaluation, decided by a hash of its text, so every
program that draws sentences agrees on the division without a list. This module knows
nothing of audio or models; `speech_synthesis.py` reads the sentences aloud.
"""

import hashlib
import random
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Language = Literal["en", "es", "de"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

HELD_OUT_ONE_IN = 12
# Shorter sentences ("Hello Emma.") are never reserved: nothing else has their words in place.
HELD_OUT_MIN_WORDS = 4
MAX_NUMBER = 9_999

_FOLDER = Path(__file__).parent / "grammars"
_SLOT = re.compile(r"\{(\w+)(?::(\d+)-(\d+))?\}")
_NOT_LETTERS = re.compile(r"[^\w\s']|_")


def _words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


_UNITS: dict[Language, tuple[str, ...]] = {
    "en": _words(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen"
    ),
    "es": _words(
        "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce "
        "quince dieciséis diecisiete dieciocho diecinueve veinte veintiuno veintidós veintitrés "
        "veinticuatro veinticinco veintiséis veintisiete veintiocho veintinueve"
    ),
    "de": _words(
        "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
        "fünfzehn sechzehn siebzehn achtzehn neunzehn"
    ),
}
_TENS: dict[Language, tuple[str, ...]] = {
    "en": _words("twenty thirty forty fifty sixty seventy eighty ninety"),
    "es": _words("veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa"),
    "de": _words("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"),
}
_HUNDREDS_ES = _words(
    "ciento doscientos trescientos cuatrocientos quinientos seiscientos setecientos ochocientos novecientos"
)
_ORDINALS_EN = _words(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
    "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"
)
_ORDINALS_DE = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}


def number_words(number: int, language: Language) -> str:
    """The cardinal 0 to 9,999 in words, as it is read aloud."""
    if not 0 <= number <= MAX_NUMBER:
        raise ValueError(f"number is {number}, allowed are 0 to {MAX_NUMBER}")
    units = _UNITS[language]
    if number < len(units):
        return units[number]
    if number < 100:
        return _tens(number, language)
    if number >= 1000:
        return _thousands(number, language)
    hundred, rest = divmod(number, 100)
    match language:
        case "en":
            head = f"{units[hundred]} hundred"
        case "es":
            head = "cien" if number == 100 else _HUNDREDS_ES[hundred - 1]
        case "de":
            head = f"{'ein' if hundred == 1 else units[hundred]}hundert"
    if rest == 0:
        return head
    return f"{head}{'' if language == 'de' else ' '}{number_words(rest, language)}"


def _tens(number: int, language: Language) -> str:
    ten, one = _TENS[language][number // 10 - 2], number % 10
    if one == 0:
        return ten
    unit = _UNITS[language][one]
    match language:
        case "en":
            return f"{ten} {unit}"
        case "es":
            return f"{ten} y {unit}"
        case "de":
            return f"{'ein' if one == 1 else unit}und{ten}"


def _thousands(number: int, language: Language) -> str:
    thousand, rest = divmod(number, 1000)
    match language:
        case "en":
            head = f"{_UNITS['en'][thousand]} thousand"
        case "es":
            head = "mil" if thousand == 1 else f"{_UNITS['es'][thousand]} mil"
        case "de":
            head = f"{'ein' if thousand == 1 else _UNITS['de'][thousand]}tausend"
    if rest == 0:
        return head
    return f"{head}{'' if language == 'de' else ' '}{number_words(rest, language)}"


def ordinal_words(number: int, language: Language) -> str:
    """The ordinal 1 to 31 in words: "thirty first", "erste" (undeclined)."""
    if not 1 <= number <= 31:
        raise ValueError(f"number is {number}, allowed are 1 to 31")
    match language:
        case "en":
            if number < 20:
                return _ORDINALS_EN[number - 1]
            ten = _TENS["en"][number // 10 - 2]
            if number % 10 == 0:
                return f"{ten[:-1]}ieth"
            return f"{ten} {_ORDINALS_EN[number % 10 - 1]}"
        case "de":
            if number in _ORDINALS_DE:
                return _ORDINALS_DE[number]
            cardinal = number_words(number, "de")
            return f"{cardinal}te" if number < 20 else f"{cardinal}ste"
        case "es":
            return number_words(number, "es")


def normalised(text: str) -> str:
    """The text's words in lower case without punctuation, one space between."""
    return " ".join(_NOT_LETTERS.sub(" ", text.lower()).split())


def is_held_out(text: str) -> bool:
    """Whether a sentence is reserved for evaluation; the same answer on every machine."""
    words = normalised(text)
    if len(words.split()) < HELD_OUT_MIN_WORDS:
        return False
    digest = hashlib.sha256(words.encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


@dataclass(frozen=True, slots=True)
class Grammar:
    """Sentence templates and the word lists that fill them, of one language."""

    language: Language
    templates: tuple[str, ...]
    slots: dict[str, tuple[str, ...]]

    def sentence(self, rng: random.Random) -> str:
        """One sentence, capitalised and with its final punctuation."""
        text = self._expand(rng.choice(self.templates), rng)
        if self.language == "es":
            text = text.replace(" de el ", " del ").replace(" a el ", " al ")
        first = next(i for i, char in enumerate(text) if char.isalpha())
        return text[:first] + text[first].upper() + text[first + 1 :]

    def training_sentence(self, rng: random.Random) -> str:
        """One sentence that is not reserved for evaluation."""
        while is_held_out(text := self.sentence(rng)):
            pass
        return text

    def held_out_sentence(self, rng: random.Random) -> str:
        """One sentence that no training program uses."""
        while not is_held_out(text := self.sentence(rng)):
            pass
        return text

    def _expand(self, template: str, rng: random.Random) -> str:
        return _SLOT.sub(lambda slot: self._fill(slot, rng), template)

    def _fill(self, slot: re.Match[str], rng: random.Random) -> str:
        name, low, high = slot.groups()
        if name == "digits":
            count = rng.randint(3, 8)
            return " ".join(number_words(rng.randint(0, 9), self.language) for _ in range(count))
        if low is None:
            return self._expand(rng.choice(self.slots[name]), rng)
        number = rng.randint(int(low), int(high))
        # Large ranges would otherwise hardly ever bring the small and the round numbers.
        if int(high) > 100 and rng.random() < 0.5:
            number = max(int(low), rng.choice([rng.randint(2, 99), 100 * rng.randint(1, 9)]))
            number = min(number, int(high))
        match name:
            case "n":
                return number_words(number, self.language)
            case "o":
                ordinal = ordinal_words(number, self.language)
                return f"{ordinal}n" if self.language == "de" else ordinal
            case "oe":
                return ordinal_words(number, self.language)
            case _:
                raise ValueError(f"slot {name!r} takes no range; n, o and oe do")


@cache
def load_grammar(language: Language) -> Grammar:
    """Read `grammars/<language>.txt`; a slot that is used but not defined is an error."""
    templates: list[str] = []
    slots: dict[str, tuple[str, ...]] = {}
    for line in (_FOLDER / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith(">"):
            templates.append(line[1:].strip())
        else:
            name, choices = line.split(":", 1)
            slots[name] = tuple(choice.strip() for choice in choices.split("|"))
    for text in (*templates, *(choice for choices in slots.values() for choice in choices)):
        for name, low, _ in _SLOT.findall(text):
            if not low and name != "digits" and name not in slots:
                raise ValueError(f"{language}.txt uses the slot {name!r} without defining it")
    return Grammar(language, tuple(templates), slots)
