"""Whether all speech is in the transcript, and nothing else: repetitions, numbers, keywords, languages.

    python examples/benchmarks/speech_accounting.py FOLDER_OF_HUMAN WORK
    sensorium serve FOLDER_OF_WHISPER --dtype float32 --port 8102
    python examples/benchmarks/speech_accounting.py FOLDER_OF_HUMAN WORK counts cards --url http://127.0.0.1:8102
    python examples/benchmarks/speech_accounting.py FOLDER_OF_HUMAN WORK counts --url … --live --speed 2
    python examples/benchmarks/speech_accounting.py FOLDER_OF_HUMAN WORK counts --faster-whisper FOLDER

FOLDER_OF_HUMAN is what `human_mixes.py` reads. WORK gets the recordings, made the same way every time. Every
case is one line with what it must be, and its transcript if it does not hold. A table ends with their count.
`--every N` takes every Nth case of a table, `--first N` begins with another, `--concurrency N` sends N
recordings at a time. Tables:

    counts     ten words, 6 to 20 times each, 0.2 s apart and in one breath: 2 or 15 % off at most, from 0.6 s
    sentences  twelve sentences, two and three times each: all words but 15 %, and no further copy
    cards      twelve card numbers, digit by digit: 15 of 16 digits
    keywords   five sets of keywords on three long mixes: at most 0.5 points more wrong than without
    languages  ten pairs of languages: both are in `languages`, and at least half of the words of each
    no_speech  sounds without speech: no words
    clean      long mixes: at most 1 % of speech without words and words without speech, no word too long
"""

from __future__ import annotations

import argparse
import importlib
import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import soundfile
from hostile_sounds import RATE_HZ
from human_mixes import Studio
from human_speech import live
from sensorium.client import Client
from sensorium.protocols.transcription.transcript import Word
from speech_cases import TABLES, Case, Recognized

TIMEOUT_S = 3600.0
TranscribeCase = Callable[[Path, Case], Recognized]


def as_file(client: Client, beam_size: int) -> TranscribeCase:
    """Asks a server."""

    def transcribe_case(path: Path, case: Case) -> Recognized:
        found = client.transcribe(
            path,
            response_format="verbose_json",
            timestamp_granularities=("word", "segment"),
            beam_size=beam_size,
            language=case.language,
            keywords=case.keywords,
        )
        return Recognized(found.text, found.languages, found.words, found.coverage, len(found.retranscribed))

    return transcribe_case


def as_session(client: Client, speed: float) -> TranscribeCase:
    """Says it to a live session of a server."""

    def transcribe_case(path: Path, case: Case) -> Recognized:
        return Recognized(
            live(client, path, speed, has_segments=False, language=case.language, keywords=case.keywords)
        )

    return transcribe_case


def faster_whisper(folder: str, beam_size: int) -> TranscribeCase:
    """Another library with the same weights, for what can be expected of them."""
    model = importlib.import_module("faster_whisper").WhisperModel(
        folder, compute_type="float32", cpu_threads=1
    )

    def transcribe_case(path: Path, case: Case) -> Recognized:
        hotwords = ", ".join(case.keywords) or None
        found, info = model.transcribe(
            str(path),
            beam_size=beam_size,
            hotwords=hotwords,
            word_timestamps=True,
            language=case.language,
        )
        pieces = list(found)
        words = [Word(word.word, word.start, word.end) for piece in pieces for word in piece.words]
        return Recognized("".join(piece.text for piece in pieces).strip(), (info.language,), words)

    return transcribe_case


def holding(
    table: str, cases: Iterable[Case], transcribe_case: TranscribeCase, work: Path, concurrency: int
) -> list[bool]:
    """Which cases hold; each of them is printed, in their order."""

    def transcribe(number: int, case: Case) -> Recognized:
        path = work / f"case_{number}.wav"
        soundfile.write(path, case.mix.samples(), RATE_HZ, subtype="PCM_16")
        try:
            return transcribe_case(path, case)
        finally:
            path.unlink()

    held, listed = [], list(cases)
    with ThreadPoolExecutor(concurrency) as pool:
        transcripts = pool.map(transcribe, range(len(listed)), listed)
        for case, recognized in zip(listed, transcripts, strict=True):
            holds, shown = case.judge(recognized)
            held.append(holds)
            print(f"{table:9s} {'ok  ' if holds else 'MISS'} {case.name:32s} {shown}", flush=True)
            if not holds:
                print(f"     {recognized.text!r}", flush=True)
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("human", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="table")
    parser.add_argument("--url", default="http://127.0.0.1:8102", help="of the server")
    parser.add_argument("--live", action="store_true", help="in a live session")
    parser.add_argument("--speed", type=float, default=1.0, help="of live audio")
    parser.add_argument("--beam-size", type=int, default=1, metavar="N")
    parser.add_argument("--faster-whisper", metavar="FOLDER")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--concurrency", type=int, default=1, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    studio = Studio(arguments.human)
    with Client(arguments.url, timeout=TIMEOUT_S) as client:
        transcribe_case = as_file(client, arguments.beam_size)
        if arguments.live:
            transcribe_case = as_session(client, arguments.speed)
        if arguments.faster_whisper:
            transcribe_case = faster_whisper(arguments.faster_whisper, arguments.beam_size)
        for table in arguments.tables:
            cases = itertools.islice(TABLES[table](studio), arguments.first, None, arguments.every)
            held = holding(table, cases, transcribe_case, arguments.work, arguments.concurrency)
            print(f"{table:9s} {sum(held)} of {len(held)} hold", flush=True)


if __name__ == "__main__":
    main()
