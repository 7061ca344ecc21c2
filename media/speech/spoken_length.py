"""How a text divides into words, and how long each takes to say.

Seconds at a middling rate: only their proportions matter to `media/speech/word_times.py`, which lays them
onto audio. Knows letters, no audio.

A word costs a constant, its vowel groups (syllables), further vowels of a group, and its consonants; the
last word before a comma or full stop is drawn out, as in all languages measured (Klatt 1976, "Linguistic
uses of segmental duration"). The numbers are rounded means over English, Spanish and German speech of
espeak-ng; residuals of a word are 0.07 s.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from typing import Final

from ...protocols.shared.scripts import word_starts

_BASE_S: Final = 0.03
_SYLLABLE_S: Final = 0.085
_EXTRA_VOWEL_S: Final = 0.045
_CONSONANT_S: Final = 0.082
_FINAL_S: Final = 0.14
_IDEOGRAPH_S: Final = 0.2
"""A whole syllable in one character: Chinese, Hangul."""
_KANA_S: Final = 0.13
_OTHER_LETTER_S: Final = 0.1
"""A letter of a script without vowel letters we know (Arabic, Devanagari, Thai)."""
_DIGIT_S: Final = 0.35
"""A figure read out, with its share of "hundred" or "zig"."""
_SPELT_S: Final = 0.3
"""A letter called by its name, as in "BBC"."""
_SYMBOL_S: Final = 0.4
"""A sign read as a word: %, €, &."""
_VOWELS: Final = frozenset("aeiouyœæøıаеёиоуыэюяіїєαεηιουω")
_DIGRAPHS: Final = re.compile(r"(.)\1|sch|th|ch|sh|ck|ph|wh|ng|gh|qu|tz")
"""Consonant letters that spell one sound."""
_RUNS: Final = re.compile(r"\d+|[^\W\d_]+|\S")
_SENTENCE_ENDS: Final = ".!?…。！？؟।"
_CLAUSE_ENDS: Final = ",;:，、；：،"
_CLOSING: Final = "\"'”’»)]}」』）】"


def spoken_words(text: str) -> list[str]:
    """Words of a text with their punctuation: at white space, by character in scripts without spaces.

    Signs by themselves (a dash between spaces) join the word before them, with one space.
    """
    line = " ".join(text.split())
    starts = word_starts(line) if line else []
    return [line[start:end].rstrip() for start, end in itertools.pairwise((*starts, len(line)))]


def phrase_end(word: str) -> str:
    """`.` if the punctuation behind the word ends a sentence, `,` if a clause, else nothing."""
    mark = word.rstrip(_CLOSING)[-1:]
    if not mark:
        return ""
    return "." if mark in _SENTENCE_ENDS else "," if mark in _CLAUSE_ENDS else ""


def spoken_length_s(word: str) -> float:
    """Expected seconds of a word (never 0); a word that ends a phrase is drawn out."""
    length = _BASE_S + sum(_run_s(run) for run in _RUNS.findall(word))
    return length + (_FINAL_S if phrase_end(word) else 0.0)


def _run_s(run: str) -> float:
    """Seconds of a run of digits, a run of letters or one sign."""
    if run[0].isdigit():
        return len(run) * _DIGIT_S
    if not run[0].isalpha():
        return _SYMBOL_S if unicodedata.category(run[0])[0] in "NS" or run in "%&@#" else 0.0
    if 2 <= len(run) <= 5 and run.isupper():
        return len(run) * _SPELT_S
    return _letters_s(run)


def _letters_s(run: str) -> float:
    letters = [_base_letter(letter) for letter in run.lower()]
    if not any(letter in _VOWELS for letter in letters):
        return sum(_lone_letter_s(letter) for letter in run)
    spelt = "".join(letters)
    num_vowels = sum(letter in _VOWELS for letter in letters)
    groups = sum(
        letter in _VOWELS and (index == 0 or letters[index - 1] not in _VOWELS)
        for index, letter in enumerate(letters)
    )
    digraphs = sum(match.group()[0] not in _VOWELS for match in _DIGRAPHS.finditer(spelt))
    num_consonants = max(0, len(letters) - num_vowels - digraphs)
    return groups * _SYLLABLE_S + (num_vowels - groups) * _EXTRA_VOWEL_S + num_consonants * _CONSONANT_S


def _base_letter(letter: str) -> str:
    """The letter without its accent."""
    return unicodedata.normalize("NFD", letter)[0]


def _lone_letter_s(letter: str) -> float:
    name = unicodedata.name(letter, "")
    if name.startswith(("CJK", "HANGUL")):
        return _IDEOGRAPH_S
    if name.startswith(("HIRAGANA", "KATAKANA")):
        return _KANA_S
    return _CONSONANT_S if name.startswith(("LATIN", "CYRILLIC", "GREEK")) else _OTHER_LETTER_S
