"""How often a model stops before everything was said, and what going on is worth: windows of prompts.

    python examples/benchmarks/early_ends.py FOLDER_OF_HUMAN FOLDER_OF_WHISPER [--windows 200]

Each window has two to eight prompts with pauses between them, some with noise under them, or with noise or
music behind. `media/transcript/truncation.py` judges; here its answers are counted, and word errors are those
of the same windows with and without it.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jiwer
import msgspec
import numpy as np
import soundfile
from hostile_sounds import RATE_HZ, Samples, pink_noise, silence, with_noise
from sensorium import LocalEngine
from sensorium.actors.speech.families import whisper
from sensorium.media.transcript.truncation import goes_on as does_go_on
from sensorium.protocols.engine.messages import TextGenerated
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

WINDOW_S = 29.5
KINDS = ("as it is", "as it is", "noise under it", "noise behind it", "music behind it")


def windows(human: Path, count: int) -> Iterator[tuple[str, str, Samples]]:
    """The kind of each, what is said in it, and its samples; the same every time."""
    draw = random.Random(1)
    listed = json.loads((human / "manifest.json").read_text("utf-8"))
    prompts = [each for each in listed if each["language"] == "en" and 1.2 <= each["seconds"] <= 8]
    music = [soundfile.read(path, dtype="float32")[0] for path in sorted((human / "music").glob("*.wav"))]
    for number in range(count):
        pause_s = draw.choice([0.4, 0.6, 0.8, 1.0, 1.5, 2.5])
        texts, pieces, seconds = list[str](), list[Samples](), 0.0
        for prompt in draw.choices(prompts, k=draw.randint(2, 8)):
            if seconds + prompt["seconds"] + pause_s > WINDOW_S:
                break
            pieces += [
                soundfile.read(human / prompt["path"], dtype="float32")[0],
                silence(pause_s),
            ]
            texts.append(prompt["text"])
            seconds += prompt["seconds"] + pause_s
        kind, after = draw.choice(KINDS), round(draw.uniform(2, 8) * RATE_HZ)
        samples = np.concatenate(pieces)
        if kind == "noise under it":
            samples = with_noise(samples, draw.uniform(5, 15), seed=number)
        elif kind == "noise behind it":
            samples = np.concatenate([samples, 0.05 * pink_noise(after, seed=number)])
        elif kind == "music behind it":
            samples = np.concatenate([samples, draw.choice(music)[:after]])
        yield kind, " ".join(texts), samples[: 30 * RATE_HZ].astype(np.float32)


def main() -> None:
    """Answer every window both ways, and print what differs."""
    parser = argparse.ArgumentParser(description="Answers that end too early.")
    parser.add_argument("human", type=Path, help="folder with manifest.json, wav/ and music/")
    parser.add_argument("model", type=Path)
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--dtype", default="auto")
    arguments = parser.parse_args()
    normal, counts = EnglishTextNormalizer({}), Counter[str]()
    references: list[str] = []
    recognized: dict[bool, list[str]] = {False: [], True: []}
    may_go_on = True

    def goes_on(answer: TextGenerated, rest: TextGenerated) -> bool:
        does = does_go_on(answer, rest)
        counts["asked"] += may_go_on
        counts["went on"] += may_go_on and does
        return may_go_on and does

    vars(whisper)["goes_on"] = goes_on
    with LocalEngine(str(arguments.model), dtype=arguments.dtype) as engine:
        for kind, text, samples in windows(arguments.human, arguments.windows):
            references.append(normal(text))
            for may_go_on in recognized:
                found = engine.transcribe((samples, RATE_HZ), language="en")
                recognized[may_go_on].append(normal(found.text))
            plain, longer = recognized[False][-1], recognized[True][-1]
            if plain != longer:
                print(f"{kind}: …{plain[-40:]} | {longer[len(plain) :]}")
                print(f"    said: …{references[-1][-80:]}")
    for may_go_on, texts in recognized.items():
        errors = jiwer.process_words(references, texts)
        print(
            f"{'going on' if may_go_on else 'as it stops'}: WER {100 * errors.wer:.2f} %, "
            f"{errors.substitutions} S {errors.deletions} D {errors.insertions} I"
        )
    print(msgspec.json.encode(counts).decode())


if __name__ == "__main__":
    main()
