"""Recordings whose right transcript is known, and how an answer to each is judged.

Made of single recordings of people (`human_mixes.py`), the same every time. `speech_accounting.py` asks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import jiwer
import numpy as np
from hostile_sounds import NOT_SPEECH, RATE_HZ, backwards_crowd, laughter, silence
from human_mixes import Mix, Studio, Utterance, conversation, spoken_part
from sensorium.media.speech.spoken_length import spoken_length_s
from sensorium.protocols.transcription.transcript import Coverage, Word
from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer

WORDS = (
    *("digits_1", "digits_7", "vm-no", "hello", "digits_9", "digits_star", "vm-goodbye", "phonetic_e_p"),
    *("vm-message", "digits_tomorrow"),
)
KEYWORDS = (
    ("undelete", "pound key", "queue"),
    ("Dashwood", "Norland", "amiable"),
    ("voicemail", "mailbox", "Asterisk"),
    ("conference", "pin number", "leader", "agent"),
    ("Kubernetes", "PostgreSQL", "quarterly", "photosynthesis", "Wilhelmina"),
)
DIGITS = {
    **dict.fromkeys(("o", "oh", "zero"), "0"),
    **dict(
        zip(
            ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"], "123456789", strict=True
        )
    ),
}
LANGUAGES = ("en", "es", "fr", "it", "ru")
MOST_LENGTHS, MOST_EXTRA_S = 3.0, 0.5
"""A word lasts at most so many times its expected length, and this."""
_ENGLISH, _BASIC = EnglishTextNormalizer({}), BasicTextNormalizer(remove_diacritics=True)
"""The texts of Spanish prompts have no accents."""


@dataclass(frozen=True, slots=True)
class Recognized:
    """What a recognizer makes of a recording; live sessions and peers give less of it."""

    text: str
    languages: tuple[str, ...] = ()
    words: Sequence[Word] = ()
    coverage: Coverage | None = None
    num_retranscribed: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """A recording, what it is asked with, and whether an answer holds: with a text for people."""

    name: str
    mix: Mix
    judge: Callable[[Recognized], tuple[bool, str]]
    language: str | None = None
    keywords: tuple[str, ...] = ()


def normal(text: str, language: str = "en") -> list[str]:
    """The words as they are compared."""
    return str((_ENGLISH if language == "en" else _BASIC)(text)).split()


def wrong(reference: str, recognized: str, language: str = "en") -> float:
    """Words wrong in percent."""
    return 100 * float(
        jiwer.wer(" ".join(normal(reference, language)), " ".join(normal(recognized, language)) or "-")
    )


def counts(studio: Studio) -> Iterator[Case]:
    """Each word with two counts of 6 to 20, each with pauses and without."""
    for number, word in enumerate(named(studio, "en", WORDS)):
        for count in (6 + 3 * number % 15, 6 + (3 * number + 7) % 15):
            for pause_s in (0.2, 0.0):
                mix = Mix([silence(0.3)])
                for _ in range(count):
                    mix.add(tight(word), pause_s)
                yield Case(f"{count} x {word.text}, {pause_s} s", mix, counted(word.text, count))


def counted(word: str, count: int) -> Callable[[Recognized], tuple[bool, str]]:
    """Judges how often a word was heard, and from when on."""
    (wanted,) = normal(word)
    wanted = wanted.replace("one", "1")  # the normaliser leaves a one by itself alone

    def judge(recognized: Recognized) -> tuple[bool, str]:
        found = "".join(normal(recognized.text)).replace("one", "1").count(wanted)
        start_s = recognized.words[0].start if recognized.words else 0.0
        holds = abs(found - count) <= max(2.0, 0.15 * count) and start_s <= 0.6
        return holds, f"{found} of {count}, from {start_s} s"

    return judge


def sentences(studio: Studio) -> Iterator[Case]:
    """Twelve sentences said two and three times, half a second apart."""
    for number, sentence in enumerate(studio.utterances("said again", "en", 12, 2.5, 6.0)):
        for count in (2, 3):
            mix = conversation([sentence] * count, [0.5])
            reference = [(" ".join([sentence.text] * count), "en")]
            yield Case(f"sentence {number} x {count}", mix, complete(reference, least=0.85, most=1.15))


def complete(
    reference: Sequence[tuple[str, str]], *, least: float, most: float = 9.0, has_languages: bool = False
) -> Callable[[Recognized], tuple[bool, str]]:
    """Judges whether there are about as many words as were said, and so many of each text's own."""

    def judge(recognized: Recognized) -> tuple[bool, str]:
        shares = []
        for text, language in reference:
            words, found = normal(text, language), normal(recognized.text, language)
            shares.append(jiwer.process_words(" ".join(words), " ".join(found) or "-").hits / len(words))
        ratio = len(recognized.text.split()) / sum(len(text.split()) for text, _ in reference)
        spoken = {language for _, language in reference}
        holds = min(shares) >= least and ratio <= most
        holds &= not has_languages or not recognized.languages or spoken <= set(recognized.languages)
        shown = " ".join(f"{100 * share:.0f}" for share in shares)
        return holds, f"right {shown} %, {ratio:.2f} of the words {' '.join(recognized.languages)}"

    return judge


def cards(studio: Studio) -> Iterator[Case]:
    """Sixteen digits in groups of four; some have the same digit four and eight times in a row."""
    digits = named(studio, "en", [f"digits_{digit}" for digit in range(10)])
    generator = np.random.default_rng(7)
    for number in range(12):
        chosen = [int(digit) for digit in generator.integers(0, 10, 16)]
        if number % 3 == 1:
            chosen[4:8] = [chosen[4]] * 4
        if number % 3 == 2:
            chosen[4:12] = [chosen[4]] * 8
        mix = Mix([silence(0.3)])
        for place, digit in enumerate(chosen):
            mix.add(tight(digits[digit]), 0.5 if place % 4 == 3 else 0.08)
        yield Case("card " + "".join(map(str, chosen)), mix, spelt("".join(map(str, chosen))))


def spelt(digits: str) -> Callable[[Recognized], tuple[bool, str]]:
    """Judges a row of digits, in figures or in words."""

    def judge(recognized: Recognized) -> tuple[bool, str]:
        found = "".join(DIGITS.get(part, part) for part in re.findall(r"\d|[a-z]+", recognized.text.lower()))
        found = re.sub(r"\D", "", found)
        errors = round(len(digits) * float(jiwer.cer(digits, found or "-")))
        return errors <= 1, f"{errors} wrong: {found}"

    return judge


def keywords(studio: Studio) -> Iterator[Case]:
    """Three mixes of 3 to 4 minutes, each without keywords first."""
    for number in range(3):
        mix = conversation(studio.utterances(f"expected {number}", "en", 36, 2.5, 9), [0.3, 0.6, 1.0, 3.5])
        plain: list[float] = []

        def judge(recognized: Recognized, mix: Mix = mix, plain: list[float] = plain) -> tuple[bool, str]:
            found = wrong(" ".join(str(part["text"]) for part in mix.parts), recognized.text)
            plain.append(found)
            return found <= plain[0] + 0.5, f"{found:.2f} % wrong, {found - plain[0]:+.2f}"

        for chosen in ((), *KEYWORDS):
            yield Case(f"mix {number}: {', '.join(chosen) or '-'}", mix, judge, keywords=chosen)


def languages(studio: Studio) -> Iterator[Case]:
    """A sentence of one language, then one of another."""
    for first, second in itertools.combinations(LANGUAGES, 2):
        purpose = f"pair {first} {second}"
        spoken = [studio.utterances(purpose, code, 1, 3.5, 6.5)[0] for code in (first, second)]
        reference = [(each.text, each.language) for each in spoken]
        judge = complete(reference, least=0.5, has_languages=True)
        yield Case(f"{first}, then {second}", conversation(spoken, [0.5]), judge)


def no_speech(studio: Studio) -> Iterator[Case]:
    """Half a minute of each sound, and ten seconds of some."""
    made = {name: make(30.0) for name, make in NOT_SPEECH.items()}
    made |= {f"{name}, 8 s": make(8.0) for name, make in NOT_SPEECH.items()}
    made |= {f"music {number}": piece[: 28 * RATE_HZ] for number, piece in enumerate(studio.music)}
    made |= {f"laughter {seed}": laughter(20.0, seed) for seed in range(4)}
    for number in range(4):
        voices = [each.samples for each in studio.utterances(f"crowd {number}", "en", 24, 2, 9)]
        made[f"crowd {number}"] = backwards_crowd(voices, 20.0)
    for name, samples in made.items():
        yield Case(name, Mix([samples]), lambda recognized: (not recognized.text, repr(recognized.text[:80])))


def clean(studio: Studio) -> Iterator[Case]:
    """Three long mixes in English and one in each other language."""
    for number in range(3):
        mix = conversation(studio.utterances(f"clean {number}", "en", 36, 2.5, 9), [0.3, 0.6, 1.0, 0.45, 1.6])
        yield Case(f"mix {number}", mix, accounted(mix))
    for language in LANGUAGES[1:]:
        mix = conversation(studio.utterances("clean", language, 12, 2.5, 9), [0.3, 0.6, 1.0])
        yield Case(f"mix {language}", mix, accounted(mix), language)


def accounted(mix: Mix) -> Callable[[Recognized], tuple[bool, str]]:
    """Judges what of the speech and the words is not accounted for, and lengths of words."""
    text, language = " ".join(str(part["text"]) for part in mix.parts), str(mix.parts[0]["language"])

    def judge(recognized: Recognized) -> tuple[bool, str]:
        found = recognized.coverage or Coverage()
        wordless = 100 * found.speech_without_words / max(found.speech, 0.01)
        speechless = 100 * found.words_without_speech / max(found.words, 1)
        long = [each.word for each in recognized.words if is_long(each)]
        shown = f"{wordless:.2f} % of speech, {speechless:.2f} % of words, {len(long)} too long {long[:3]}"
        shown += (
            f", {recognized.num_retranscribed} again, {wrong(text, recognized.text, language):.2f} % wrong"
        )
        return wordless <= 1.0 and speechless <= 1.0 and not long, shown

    return judge


def is_long(word: Word) -> bool:
    """Whether it lasts longer than its letters allow."""
    return word.end - word.start > MOST_LENGTHS * spoken_length_s(word.word) + MOST_EXTRA_S


TABLES = {each.__name__: each for each in (counts, sentences, cards, keywords, languages, no_speech, clean)}


def named(studio: Studio, language: str, names: Sequence[str]) -> list[Utterance]:
    """Recordings by their names."""
    known = {each.id: each for each in studio.utterances("by name", language, 10_000, 0.0, 60.0)}
    return [known[f"{language}_{name}"] for name in names]


def tight(utterance: Utterance) -> Utterance:
    """Without the silence around it."""
    first, last = spoken_part(utterance.samples)
    return Utterance(utterance.id, utterance.text, utterance.language, utterance.samples[first:last])
