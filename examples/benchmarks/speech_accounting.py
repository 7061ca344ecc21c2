"""Whether all that is said is in the transcript, and nothing else: repetitions, numbers, keywords, languages.

    python examples/benchmarks/speech_accounting.py FOLDER_OF_HUMAN WORK
    sensorium serve FOLDER_OF_WHISPER --dtype float32 --port 8102
    python examples/benchmarks/speech_accounting.py FOLDER_OF_HUMAN WORK counts cards --url http://127.0.0.1:8102
    python examples/benchmarks/speech_accounting.py FOLDER_OF_HUMAN WORK counts --url … --live --speed 2
    python examples/benchmarks/speech_accounting.py FOLDER_OF_HUMAN WORK counts --faster-whisper FOLDER

FOLDER_OF_HUMAN is what `human_mixes.py` reads. WORK gets the recordings, made the same way every time. Every
case is one line with what it must be, and a table ends with how many cases hold. `--every N` takes every Nth
case of a table, `--first N` begins with another. Tables:

    counts     ten words, 6 to 20 times each, 0.2 s apart and in one breath: 15 % off at most, from 0.6 s on
    sentences  twelve sentences, two and three times each: all words but 15 %, and no further copy
    cards      twelve card numbers, digit by digit: 15 of 16 digits
    keywords   five sets of keywords on three long mixes: at most 0.5 points more wrong than without
    languages  ten pairs of languages: both are in `languages`, and at least half of the words of each
    nobody     what is no speech: no words
    clean      long mixes: at most 1 % of speech without words and words without speech, no word too long
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import soundfile
from hostile_sounds import NOT_SPEECH, RATE_HZ, backwards_crowd, laughter, silence
from human_mixes import Mix, Studio, Utterance, conversation, spoken_part
from sensorium.client import Client, Completed
from sensorium.client.audio import read_wav
from sensorium.media.spoken_length import spoken_length_s
from sensorium.protocols.transcript import Coverage, Word
from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer

WORDS = ("digits_1", "digits_7", "vm-no", "hello", "digits_9", "digits_star", "vm-goodbye", "phonetic_e_p")
WORDS += ("vm-message", "digits_tomorrow")
KEYWORDS = (
    ("undelete", "pound key", "queue"),
    ("Dashwood", "Norland", "amiable"),
    ("voicemail", "mailbox", "Asterisk"),
    ("conference", "pin number", "leader", "agent"),
    ("Kubernetes", "PostgreSQL", "quarterly", "photosynthesis", "Wilhelmina"),
)
LANGUAGES = ("en", "es", "fr", "it", "ru")
MOST_LENGTHS, MOST_EXTRA_S = 3.0, 0.5
"""A word lasts at most so many times its expected length, and this."""
TIMEOUT_S = 3600.0
_ENGLISH, _BASIC = EnglishTextNormalizer({}), BasicTextNormalizer()


@dataclass(frozen=True, slots=True)
class Heard:
    """What a recognizer makes of a recording; live sessions and peers give less of it."""

    text: str
    languages: tuple[str, ...] = ()
    words: Sequence[Word] = ()
    coverage: Coverage | None = None
    num_reheard: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """A recording, what it is asked with, and whether an answer holds: with a text for people."""

    name: str
    mix: Mix
    judge: Callable[[Heard], tuple[bool, str]]
    options: dict[str, Any] = field(default_factory=dict)


def normal(text: str, language: str = "en") -> list[str]:
    """The words as they are compared."""
    return str((_ENGLISH if language == "en" else _BASIC)(text)).split()


def wrong(said: str, heard: str, language: str = "en") -> float:
    """Words wrong in percent."""
    return 100 * float(jiwer.wer(" ".join(normal(said, language)), " ".join(normal(heard, language)) or "-"))


def counts(studio: Studio) -> Iterator[Case]:
    """Each word with two counts of 6 to 20, each with pauses and without."""
    for number, word in enumerate(named(studio, "en", WORDS)):
        for count in (6 + 3 * number % 15, 6 + (3 * number + 7) % 15):
            for pause_s in (0.2, 0.0):
                mix = Mix([silence(0.3)])
                for _ in range(count):
                    mix.say(tight(word), pause_s)
                yield Case(f"{count} x {word.text}, {pause_s} s", mix, counted(word.text, count))


def counted(word: str, count: int) -> Callable[[Heard], tuple[bool, str]]:
    """Judges how often a word was heard, and from when on."""
    (wanted,) = normal(word)

    def judge(heard: Heard) -> tuple[bool, str]:
        found = "".join(normal(heard.text)).count(wanted)
        start_s = heard.words[0].start if heard.words else 0.0
        return abs(found - count) <= 0.15 * count and start_s <= 0.6, f"{found} of {count}, from {start_s} s"

    return judge


def sentences(studio: Studio) -> Iterator[Case]:
    """Twelve sentences said two and three times, half a second apart."""
    for number, sentence in enumerate(studio.utterances("said again", "en", 12, 2.5, 6.0)):
        for count in (2, 3):
            mix = conversation([sentence] * count, [0.5])
            said = [(" ".join([sentence.text] * count), "en")]
            yield Case(f"sentence {number} x {count}", mix, complete(said, least=0.85, most=1.15))


def complete(
    said: Sequence[tuple[str, str]], *, least: float, most: float = 9.0, has_languages: bool = False
) -> Callable[[Heard], tuple[bool, str]]:
    """Judges whether there are about as many words as were said, and so many of each text's own."""

    def judge(heard: Heard) -> tuple[bool, str]:
        shares = []
        for text, language in said:
            words, found = normal(text, language), normal(heard.text, language)
            shares.append(jiwer.process_words(" ".join(words), " ".join(found) or "-").hits / len(words))
        ratio = len(heard.text.split()) / sum(len(text.split()) for text, _ in said)
        spoken = {language for _, language in said}
        holds = min(shares) >= least and ratio <= most
        holds &= not has_languages or not heard.languages or spoken <= set(heard.languages)
        shown = " ".join(f"{100 * share:.0f}" for share in shares)
        return holds, f"right {shown} %, {ratio:.2f} of the words {' '.join(heard.languages)}"

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
            mix.say(tight(digits[digit]), 0.5 if place % 4 == 3 else 0.08)
        yield Case("card " + "".join(map(str, chosen)), mix, spelt("".join(map(str, chosen))))


def spelt(digits: str) -> Callable[[Heard], tuple[bool, str]]:
    """Judges a row of digits."""

    def judge(heard: Heard) -> tuple[bool, str]:
        text = re.sub(r"\boh?\b", "0", " ".join(normal(heard.text)))
        found = "".join(re.findall(r"\d", text))
        errors = round(len(digits) * float(jiwer.cer(digits, found or "-")))
        return errors <= 1, f"{errors} wrong: {found}"

    return judge


def keywords(studio: Studio) -> Iterator[Case]:
    """Three mixes of 3 to 4 minutes, each without keywords first."""
    for number in range(3):
        mix = conversation(studio.utterances(f"expected {number}", "en", 36, 2.5, 9), [0.3, 0.6, 1.0, 3.5])
        plain: list[float] = []

        def judge(heard: Heard, mix: Mix = mix, plain: list[float] = plain) -> tuple[bool, str]:
            found = wrong(" ".join(str(part["text"]) for part in mix.parts), heard.text)
            plain.append(found)
            return found <= plain[0] + 0.5, f"{found:.2f} % wrong, {found - plain[0]:+.2f}"

        for chosen in ((), *KEYWORDS):
            yield Case(f"mix {number}: {', '.join(chosen) or '-'}", mix, judge, {"keywords": chosen})


def languages(studio: Studio) -> Iterator[Case]:
    """A sentence of one language, then one of another."""
    for first, second in itertools.combinations(LANGUAGES, 2):
        purpose = f"pair {first} {second}"
        spoken = [studio.utterances(purpose, code, 1, 3.5, 6.5)[0] for code in (first, second)]
        said = [(each.text, each.language) for each in spoken]
        judge = complete(said, least=0.5, has_languages=True)
        yield Case(f"{first}, then {second}", conversation(spoken, [0.5]), judge)


def nobody(studio: Studio) -> Iterator[Case]:
    """Half a minute of each sound, and ten seconds of some."""
    made = {name: make(30.0) for name, make in NOT_SPEECH.items()}
    made |= {f"{name}, 8 s": make(8.0) for name, make in NOT_SPEECH.items()}
    made |= {f"music {number}": piece[: 28 * RATE_HZ] for number, piece in enumerate(studio.music)}
    made |= {f"laughter {seed}": laughter(20.0, seed) for seed in range(4)}
    for number in range(4):
        voices = [each.samples for each in studio.utterances(f"crowd {number}", "en", 24, 2, 9)]
        made[f"crowd {number}"] = backwards_crowd(voices, 20.0)
    for name, samples in made.items():
        yield Case(name, Mix([samples]), lambda heard: (not heard.text, repr(heard.text[:80])))


def clean(studio: Studio) -> Iterator[Case]:
    """Three long mixes in English and one in each other language."""
    for number in range(3):
        mix = conversation(studio.utterances(f"clean {number}", "en", 36, 2.5, 9), [0.3, 0.6, 1.0, 0.45, 1.6])
        yield Case(f"mix {number}", mix, accounted(mix))
    for language in LANGUAGES[1:]:
        mix = conversation(studio.utterances("clean", language, 12, 2.5, 9), [0.3, 0.6, 1.0])
        yield Case(f"mix {language}", mix, accounted(mix), {"language": language})


def accounted(mix: Mix) -> Callable[[Heard], tuple[bool, str]]:
    """Judges what of the speech and the words is not accounted for, and lengths of words."""
    text, language = " ".join(str(part["text"]) for part in mix.parts), str(mix.parts[0]["language"])

    def judge(heard: Heard) -> tuple[bool, str]:
        found = heard.coverage or Coverage()
        wordless = 100 * found.speech_without_words / max(found.speech, 0.01)
        speechless = 100 * found.words_without_speech / max(found.words, 1)
        long = [each.word for each in heard.words if is_long(each)]
        shown = f"{wordless:.2f} % of speech, {speechless:.2f} % of words, {len(long)} too long {long[:3]}"
        shown += f", {heard.num_reheard} again, {wrong(text, heard.text, language):.2f} % wrong"
        return wordless <= 1.0 and speechless <= 1.0 and not long, shown

    return judge


def is_long(word: Word) -> bool:
    """Whether it lasts longer than its letters allow."""
    return word.end - word.start > MOST_LENGTHS * spoken_length_s(word.word) + MOST_EXTRA_S


TABLES = {each.__name__: each for each in (counts, sentences, cards, keywords, languages, nobody, clean)}


def named(studio: Studio, language: str, names: Sequence[str]) -> list[Utterance]:
    """Recordings by their names."""
    known = {each.id: each for each in studio.utterances("by name", language, 10_000, 0.0, 60.0)}
    return [known[f"{language}_{name}"] for name in names]


def tight(utterance: Utterance) -> Utterance:
    """Without the silence around it."""
    first, last = spoken_part(utterance.samples)
    return Utterance(utterance.id, utterance.text, utterance.language, utterance.samples[first:last])


Ask = Callable[[Path, dict[str, Any]], Heard]


def as_file(client: Client, beam_size: int) -> Ask:
    """Asks a server."""

    def ask(path: Path, options: dict[str, Any]) -> Heard:
        times = ("word", "segment")
        found = client.transcribe(
            path,
            response_format="verbose_json",
            timestamp_granularities=times,
            beam_size=beam_size,
            **options,
        )
        return Heard(found.text, found.languages, found.words, found.coverage, len(found.reheard))

    return ask


def as_session(client: Client, speed: float) -> Ask:
    """Says it to a live session."""

    def ask(path: Path, options: dict[str, Any]) -> Heard:
        audio = read_wav(path)
        with client.realtime(sample_rate=audio.rate, **options) as session:
            events = list(session.transcribe(audio.chunks(), speed=speed))
        done = [event for event in events if isinstance(event, Completed)]
        return Heard(" ".join(event.transcript for event in done))

    return ask


def faster_whisper(folder: str, beam_size: int) -> Ask:
    """Another library with the same weights, for what can be expected of them."""
    model = importlib.import_module("faster_whisper").WhisperModel(
        folder, compute_type="float32", cpu_threads=1
    )

    def ask(path: Path, options: dict[str, Any]) -> Heard:
        hotwords = ", ".join(options.get("keywords", ())) or None
        found, info = model.transcribe(
            str(path),
            beam_size=beam_size,
            hotwords=hotwords,
            word_timestamps=True,
            language=options.get("language"),
        )
        pieces = list(found)
        words = [Word(word.word, word.start, word.end) for piece in pieces for word in piece.words]
        return Heard("".join(piece.text for piece in pieces).strip(), (info.language,), words)

    return ask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("human", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], default=list(TABLES))
    parser.add_argument("--url", default="http://127.0.0.1:8102", help="of the server")
    parser.add_argument("--live", action="store_true", help="in a live session")
    parser.add_argument("--speed", type=float, default=1.0, help="of live audio")
    parser.add_argument("--beam-size", type=int, default=1, metavar="N")
    parser.add_argument("--faster-whisper", metavar="FOLDER")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    studio, path = Studio(arguments.human), arguments.work / "case.wav"
    with Client(arguments.url, timeout=TIMEOUT_S) as client:
        ask = as_session(client, arguments.speed) if arguments.live else as_file(client, arguments.beam_size)
        if arguments.faster_whisper:
            ask = faster_whisper(arguments.faster_whisper, arguments.beam_size)
        for table in arguments.tables:
            held = []
            for case in itertools.islice(TABLES[table](studio), arguments.first, None, arguments.every):
                soundfile.write(path, case.mix.samples(), RATE_HZ, subtype="PCM_16")
                begun_s = time.monotonic()
                holds, shown = case.judge(ask(path, case.options))
                held.append(holds)
                took_s = time.monotonic() - begun_s
                mark = "ok  " if holds else "MISS"
                print(f"{table:9s} {mark} {case.name:32s} {took_s:6.1f} s  {shown}", flush=True)
            print(f"{table:9s} {sum(held)} of {len(held)} hold", flush=True)


if __name__ == "__main__":
    main()
