"""What keywords are worth: human prompts with hard words in them, heard without, told, and made likelier.

    python examples/benchmarks/bench_keywords.py FOLDER_OF_HUMAN FOLDER_OF_WHISPER [--dtype bfloat16]

`KEYWORDS` are words of these prompts, many of which Whisper base misspells; forty `STRANGERS` are in none.
For each boost (`-`: no keywords at all; 0: the model is told of them, no more): how many of the spoken
keywords are written right, how many are written that nobody said, and the word errors of the prompts with a
keyword and of sixty without.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import jiwer
import soundfile
from sensorium import LocalEngine
from sensorium.actors.local.speech import TranscribeOptions
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

KEYWORDS: Final = [
    "caller",
    "Digium",
    "undelete",
    "rerecord",
    "filename",
    "blacklist",
    "kilobit",
    "touch tone",
    "Waldo's",
    "Asterisk",
    "voicemail",
    "unmute",
    "PBX",
    "IAX",
    "mailbox",
]
STRANGERS: Final = [
    "Kubernetes",
    "Ada Lovelace",
    "Toblerone",
    "Fauci",
    "Reykjavik",
    "Siobhan",
    "Nguyen",
    "quinoa",
    "Grafana",
    "Postgres",
    "metformin",
    "ibuprofen",
    "Zhivago",
    "Worcester",
    "Leicester",
    "Qatar",
    "Huawei",
    "Xiaomi",
    "Schwarzenegger",
    "Beyonce",
    "Nvidia",
    "PyTorch",
    "Whisper",
    "Tchaikovsky",
    "Dvorak",
    "Galapagos",
    "Kyrgyzstan",
    "Azerbaijan",
    "Ouagadougou",
    "Wolverhampton",
    "Marseille",
    "Brno",
    "Gdansk",
    "Lisbon",
    "Eyjafjallajokull",
    "Prometheus",
    "Terraform",
    "Ansible",
    "Jenkins",
    "Redis",
]
NUM_OTHERS: Final = 60


@dataclass(frozen=True, slots=True)
class Prompt:
    """A recording and the words in it, in lower case and without punctuation."""

    path: Path
    text: str

    @property
    def has_keyword(self) -> bool:
        """Whether one of `KEYWORDS` is said."""
        return any(f" {word.lower()} " in f" {self.text} " for word in KEYWORDS)


@dataclass(slots=True)
class Score:
    """Of the answers to some prompts."""

    num_spoken: int = 0
    num_found: int = 0
    num_false: int = 0
    reference: list[str] = field(default_factory=list)
    recognized: list[str] = field(default_factory=list)

    def add(self, reference: str, recognized: str, words: Sequence[str]) -> None:
        """One more prompt, and what was heard of it."""
        self.reference.append(reference)
        self.recognized.append(recognized)
        spoken, written = Counter(reference.split()), Counter(recognized.split())
        for word in words:
            self.num_spoken += spoken[word]
            self.num_found += min(spoken[word], written[word])
            self.num_false += max(0, written[word] - spoken[word])

    def __str__(self) -> str:
        errors = jiwer.wer(self.reference, self.recognized)
        return f"{self.num_found:4d} of {self.num_spoken:2d} {self.num_false:6d} {errors:7.2%}"


def prompts(human: Path) -> tuple[list[Prompt], list[Prompt]]:
    """Those with a keyword, and some without; the same every time."""
    normal = EnglishTextNormalizer({})
    every = [
        Prompt(human / each["path"], normal(each["text"]))
        for each in json.loads((human / "manifest.json").read_text("utf-8"))
        if each["language"] == "en" and each["seconds"] > 1.5 and len(each["text"].split()) >= 3
    ]
    others = [each for each in every if not each.has_keyword]
    random.Random(0).shuffle(others)
    return [each for each in every if each.has_keyword], others[:NUM_OTHERS]


def score(engine: LocalEngine, requests: Sequence[Prompt], boost: float | None) -> Score:
    """What is heard at a boost; None: no keywords are given."""
    normal = EnglishTextNormalizer({})
    words = [normal(word) for word in (*KEYWORDS, *STRANGERS) if " " not in word]
    found = Score()
    options = TranscribeOptions(language="en", timestamp_granularities=[])
    if boost is not None:
        options |= {"keywords": [*KEYWORDS, *STRANGERS], "keyword_boost": boost}
    for each in requests:
        samples, rate = soundfile.read(each.path, dtype="float32")
        found.add(each.text, normal(engine.transcribe((samples, rate), **options).text), words)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("human", type=Path)
    parser.add_argument("whisper", type=Path)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--boosts", type=float, nargs="+", default=[0, 1, 2, 2.5, 3, 4])
    options = parser.parse_args()
    with_keywords, without = prompts(options.human)
    print(f"{len(with_keywords)} prompts with keywords, {len(without)} without")
    print("boost      found  false  errors          others: false  errors")
    with LocalEngine(options.whisper, dtype=options.dtype) as engine:
        for boost in (None, *options.boosts):
            with_, others = score(engine, with_keywords, boost), score(engine, without, boost)
            shown = "-" if boost is None else f"{boost:g}"
            print(f"{shown:5s} {with_!s}          {others!s}", flush=True)


if __name__ == "__main__":
    main()
