"""Windows in two languages, and in one: word errors where nobody names them, and where somebody does.

    python examples/benchmarks/several_languages.py FOLDER_OF_HUMAN FOLDER_OF_WHISPER [--windows 60]

Each window is up to half a minute of prompts with pauses between them, first in one language and then, or
not, in another; they are the same every time. `found` counts windows whose languages are those of the
answer's segments, all and no other.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import soundfile
from hostile_sounds import RATE_HZ, Samples, silence
from sensorium import LocalEngine
from transformers.models.whisper.english_normalizer import BasicTextNormalizer

PAUSE_S = 0.7
LEAST_S = {1: ((10, 24),), 2: ((4, 14), (4, 12))}
"""Of speech in each language of a window, with its pauses."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is heard, what is said in it, and the languages of that."""

    samples: Samples
    text: str
    languages: tuple[str, ...]


def windows(human: Path, num_languages: int, count: int) -> Iterator[Window]:
    """So many, in one language each or in two."""
    draw = random.Random(f"several languages/{num_languages}")
    prompts: dict[str, list[Any]] = defaultdict(list)
    for each in json.loads((human / "manifest.json").read_text("utf-8")):
        if 1.5 <= each["seconds"] <= 8:
            prompts[each["language"]].append(each)
    for _ in range(count):
        languages = draw.sample(sorted(prompts), num_languages)
        texts, pieces = list[str](), list[Samples]()
        for language, bounds in zip(languages, LEAST_S[num_languages], strict=True):
            left_s = draw.uniform(*bounds)
            while left_s > 0:
                prompt = draw.choice(prompts[language])
                pieces += [soundfile.read(human / prompt["path"], dtype="float32")[0], silence(PAUSE_S)]
                texts.append(prompt["text"])
                left_s -= prompt["seconds"] + PAUSE_S
        samples = np.concatenate(pieces)[: 30 * RATE_HZ].astype(np.float32)
        yield Window(samples, " ".join(texts), tuple(languages))


def main() -> None:
    """Transcribe all windows both ways."""
    parser = argparse.ArgumentParser(description="Windows in several languages.")
    parser.add_argument("human", type=Path, help="folder with manifest.json and wav/")
    parser.add_argument("model", type=Path)
    parser.add_argument("--windows", type=int, default=60, help="of each kind")
    parser.add_argument("--dtype", default="auto")
    arguments = parser.parse_args()
    normal = BasicTextNormalizer()
    with LocalEngine(str(arguments.model), dtype=arguments.dtype) as engine:
        for num_languages in LEAST_S:
            references: list[str] = []
            recognized: dict[str, list[str]] = {"unnamed": [], "named": []}
            num_found = dict.fromkeys(recognized, 0)
            for window in windows(arguments.human, num_languages, arguments.windows):
                references.append(normal(window.text))
                for name, texts in recognized.items():
                    languages = window.languages if name == "named" else ()
                    found = engine.transcribe((window.samples, RATE_HZ), languages=languages)
                    texts.append(normal(found.text))
                    num_found[name] += {each.language for each in found.segments} == set(window.languages)
            for name, texts in recognized.items():
                errors = jiwer.process_words(references, texts)
                print(
                    f"{num_languages} {'language ' if num_languages == 1 else 'languages'} {name:8s}"
                    f" WER {100 * errors.wer:5.2f} %, found in {num_found[name]} of {len(references)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
