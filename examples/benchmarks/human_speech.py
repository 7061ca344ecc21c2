"""Word errors of a running server on long and hostile recordings, in every format, as files and live.

    python examples/benchmarks/human_mixes.py FOLDER_OF_HUMAN MIXES
    sensorium serve FOLDER_OF_WHISPER --dtype float32
    python examples/benchmarks/human_speech.py MIXES long hostile --formats json srt live
    python examples/benchmarks/human_speech.py MIXES music --url http://127.0.0.1:8000

Names choose all mixes that begin with them; none, all. The texts are compared as the Whisper paper does,
behind its normaliser: WER in percent, and substituted, deleted and inserted words. Where nobody speaks the
words that were invented are counted. `same` says whether a format has the words of the first one.
`--faster-whisper FOLDER` adds rows of that library, where there is one; `--beam-size` is for files of both.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, cast

import jiwer
from sensorium.client import Client, Completed, SegmentEvent
from sensorium.client.audio import read_wav
from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer

Format = Literal["json", "verbose_json", "words", "srt", "vtt", "live", "live_segments"]
FORMATS: Final[tuple[Format, ...]] = ("json", "verbose_json", "words", "srt", "vtt", "live", "live_segments")
TIMEOUT_S: Final = 1800.0
_CUE_HEAD: Final = re.compile(r"^(WEBVTT|\d+|[\d:.,]+ --> .*)$")


@dataclass(frozen=True, slots=True)
class Mix:
    """A recording and what is said in it; "" if nobody speaks."""

    id: str
    path: Path
    language: str
    text: str

    def normal(self, text: str) -> str:
        """The text as it is compared."""
        plain = EnglishTextNormalizer({}) if self.language == "en" else BasicTextNormalizer()
        return str(plain(text))


def read_mixes(folder: Path, names: Sequence[str]) -> list[Mix]:
    """The mixes of a folder whose names begin with one of `names`, or all."""
    listed = json.loads((folder / "manifest.json").read_text("utf-8"))
    return [
        Mix(each["id"], folder / each["path"], each["language"], each["text"])
        for each in listed
        if not names or any(each["id"].startswith(name) for name in names)
    ]


def subtitle_text(document: str) -> str:
    """What a reader of an SRT or WebVTT document sees."""
    return " ".join(line for line in document.splitlines() if line and not _CUE_HEAD.match(line))


def transcribed_text(client: Client, mix: Mix, *, wanted: Format, speed: float, beam_size: int) -> str:
    """The text of a recording in one format."""
    match wanted:
        case "json":
            return client.transcribe(mix.path, response_format="json", beam_size=beam_size).text
        case "verbose_json":
            found = client.transcribe(mix.path, response_format="verbose_json", beam_size=beam_size)
            return "".join(segment.text for segment in found.segments)
        case "words":
            found = client.transcribe(mix.path, timestamp_granularities=("word",), beam_size=beam_size)
            return " ".join(word.word for word in found.words)
        case "srt" | "vtt":
            document = client.transcribe(mix.path, response_format=wanted, beam_size=beam_size)
            return subtitle_text(document)
        case "live" | "live_segments":
            return live(client, mix.path, speed, has_segments=wanted == "live_segments")


def live(
    client: Client,
    path: Path,
    speed: float,
    *,
    has_segments: bool,
    language: str | None = None,
    keywords: Sequence[str] = (),
) -> str:
    """All turns of a live session that is sent the recording."""
    audio = read_wav(path)
    texts: list[str] = []
    with client.realtime(
        sample_rate=audio.rate,
        timestamp_granularities=("segment",) if has_segments else (),
        language=language,
        keywords=keywords,
    ) as session:
        for event in session.transcribe(audio.chunks(), speed=speed):
            match event:
                case SegmentEvent(text=text) if has_segments:
                    texts.append(text)
                case Completed(transcript=text) if not has_segments:
                    texts.append(text)
                case _:
                    pass
    return " ".join(texts)


def faster_whisper(folder: str, beam_size: int) -> Callable[[Mix], str]:
    """How that library transcribes, without voice activity detection."""
    model = importlib.import_module("faster_whisper").WhisperModel(
        folder, device="cpu", compute_type="float32"
    )

    def transcribe(mix: Mix) -> str:
        segments, _ = model.transcribe(str(mix.path), beam_size=beam_size)
        return "".join(segment.text for segment in segments)

    return transcribe


def line(mix: Mix, name: str, text: str, first: str | None, took_s: float) -> str:
    """A row of the table."""
    reference, recognized = mix.normal(mix.text), mix.normal(text)
    same = "" if first is None else "same" if recognized == mix.normal(first) else "DIFFERS"
    if not reference:
        return (
            f"{mix.id:20s} {name:14s} {len(recognized.split()):4d} words invented {same:8s} {took_s:6.1f} s"
        )
    found = jiwer.process_words(reference, recognized or "-")
    counts = f"{found.substitutions:3d} S {found.deletions:3d} D {found.insertions:3d} I"
    return (
        f"{mix.id:20s} {name:14s} {100 * found.wer:6.2f} %  {counts} of {len(reference.split()):4d}  "
        f"{same:8s}{took_s:6.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("mixes", type=Path, help="folder that human_mixes.py wrote")
    parser.add_argument("names", nargs="*", help="beginnings of names")
    parser.add_argument("--url", help="of the server")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=["json", "verbose_json"])
    parser.add_argument("--speed", type=float, default=1.0, help="of live audio")
    parser.add_argument("--faster-whisper", metavar="FOLDER", help="model of faster-whisper to compare with")
    parser.add_argument("--beam-size", type=int, default=1, metavar="N", help="answers side by side")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write the texts there")
    arguments = parser.parse_args()
    columns: dict[str, Callable[[Mix], str]] = {}
    with Client(arguments.url, timeout=TIMEOUT_S) as client:
        for wanted in cast(list[Format], arguments.formats):
            columns[wanted] = partial(
                transcribed_text, client, wanted=wanted, speed=arguments.speed, beam_size=arguments.beam_size
            )
        if arguments.faster_whisper:
            columns["faster-whisper"] = faster_whisper(arguments.faster_whisper, arguments.beam_size)
        for mix in read_mixes(arguments.mixes, arguments.names):
            first: str | None = None
            for name, transcribe in columns.items():
                begun_s = time.monotonic()
                text = transcribe(mix)
                print(line(mix, name, text, first, time.monotonic() - begun_s), flush=True)
                first = text if first is None else first
                if arguments.save:
                    arguments.save.mkdir(parents=True, exist_ok=True)
                    (arguments.save / f"{mix.id}.{name}.txt").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
