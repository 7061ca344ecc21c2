"""Thousands of words and names a language, as `open_text.py` says them, from packages with a free licence.

Nothing of them is kept in the repository: `build` reads a folder with the packages and writes `words.json`.
Which words are frequent comes from wordfreq (PyPI, data CC-BY-SA 4.0), how they are spelt from Debian's
wamerican, wspanish (public domain) and wngerman (GPL-2+), names from Faker (PyPI, MIT):

    pip download --no-deps wordfreq==3.1.1 faker==40.54.0
    apt-get download wamerican wngerman wspanish && for each in *.deb; do dpkg -x $each debian; done

Of words that espeak-ng speaks alike only the most frequent stays, so that what is heard has one spelling; the
others are `variants`, which nobody can know without being told.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import re
import sys
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from speech_grammar import LANGUAGES, Language, load_grammar, normalised, number_words
from speech_synthesis import Speaker
from tiny_whisper_tokens import LETTERS

NUM_WORDS: Final = 6_000
NUM_NAMES: Final = 1_200
NUM_VARIANTS: Final = 600
DEFAULT_FOLDER: Final = Path.home() / ".cache" / "sensorium" / "tiny-qwen3-asr"

_DICTIONARIES: Final[dict[Language, str]] = {"en": "american-english", "es": "spanish", "de": "ngerman"}
_LOCALES: Final[dict[Language, str]] = {"en": "en_US", "es": "es_ES", "de": "de_DE"}
_VOICES: Final[dict[Language, str]] = {"en": "en-us", "es": "es", "de": "de"}
_STRESS: Final = re.compile(r"[',%=_:|!]")
# Written with a capital in the middle of a sentence, and in no dictionary of small words.
_ENGLISH_I: Final = ("I", "I'm", "I'll", "I'd", "I've")


class Words(msgspec.Struct, frozen=True):
    """One language's lists, the most frequent first; `variants` sound like a word or a name in the others."""

    words: list[str]
    names: list[str]
    variants: list[str]


def build(sources: Path, output: Path) -> None:
    """Write the lists of all languages; `sources` holds the packages as the module's text says."""
    speaker = Speaker()
    lists = {language: _built(sources, language, speaker) for language in LANGUAGES}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(msgspec.json.format(msgspec.json.encode(lists), indent=1))
    for language, each in lists.items():
        print(f"{language}: {len(each.words)} words, {len(each.names)} names, {len(each.variants)} variants")


@cache
def load_words(path: Path) -> dict[Language, Words]:
    """The lists that `build` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=dict[Language, Words])


def _built(sources: Path, language: Language, speaker: Speaker) -> Words:
    spelling = _spelling(sources / "debian" / "usr" / "share" / "dict" / _DICTIONARIES[language])
    frequent = (spelling[word] for word in _frequent(sources, language) if word in spelling)
    counted = _own_words(language)
    pronunciations: set[str] = set()
    variants: list[str] = []

    def distinct(candidates: Iterable[str], limit: int) -> list[str]:
        kept: list[str] = []
        for word in dict.fromkeys(candidates):
            if len(kept) == limit:
                break
            sound = _STRESS.sub("", speaker.phonemes(word.lower(), _VOICES[language]))
            if sound not in pronunciations:
                pronunciations.add(sound)
                kept.append(word)
            elif len(word) > 3:
                variants.append(word)
        return kept

    # What is counted and named keeps its spelling: "two" stays, "to" and "too" are only said in sentences.
    distinct(counted, len(counted))
    variants.clear()
    words = distinct((word for word in frequent if _can_be_written(word)), NUM_WORDS)
    names = distinct(filter(_can_be_written, _names(sources, language)), NUM_NAMES)
    others = [word for word in dict.fromkeys(variants) if word not in {*counted, *words, *names}]
    return Words(words, names, others[-NUM_VARIANTS:])


def _can_be_written(word: str) -> bool:
    return (
        len(word) > 1
        and " " not in word
        and set(normalised(word)) <= set(LETTERS)
        and normalised(word) == word.lower()
    )


def _own_words(language: Language) -> list[str]:
    numbers = [number_words(number, language) for number in range(100)]
    grammar = load_grammar(language)
    calendar = [*grammar.slots["day"], *grammar.slots["month"]]
    return [word for text in (*numbers, *calendar) for word in text.split()]


def _spelling(path: Path) -> dict[str, str]:
    """Lower case → as written within a sentence; small where both are words."""
    lines = path.read_text("utf-8").split()
    spelling = {word.lower(): word for word in lines if word[1:] == word[1:].lower()}
    spelling |= {word: word for word in lines if word == word.lower()}
    if path.name == _DICTIONARIES["en"]:
        spelling |= {word.lower(): word for word in _ENGLISH_I}
    return spelling


def _frequent(sources: Path, language: Language) -> Iterable[str]:
    """wordfreq's words, the most frequent first."""
    wheel = next(sources.glob("wordfreq-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        packed = archive.read(f"wordfreq/data/large_{language}.msgpack.gz")
    header, *bins = msgspec.msgpack.decode(gzip.decompress(packed))
    if header.get("format") != "cB":
        raise ValueError(f"{wheel} has word lists of the format {header!r}")
    return (word for same_frequency in bins for word in same_frequency)


def _names(sources: Path, language: Language) -> list[str]:
    """First and last names in turn."""
    wheel = str(next(sources.glob("faker-*.whl")))
    if wheel not in sys.path:
        sys.path.append(wheel)
    provider = importlib.import_module(f"faker.providers.person.{_LOCALES[language]}").Provider
    first, last = (
        sorted({str(name) for name in getattr(provider, attribute)}, key=lambda name: (hash_of(name), name))
        for attribute in ("first_names", "last_names")
    )
    return [name for pair in zip(first, last, strict=False) for name in pair]


def hash_of(text: str) -> int:
    """The same number for a text on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
