"""Embeds the same sentences with `LocalEngine.embed` and with `sentence-transformers`, in turn.

    python examples/benchmarks/bench_embeddings.py FOLDER [--dtype bfloat16] [--reference-dtype float32]
        [--rounds 7] [--threads 2]

FOLDER is a sentence-transformers folder with a word-piece vocabulary; `pip install sentence-transformers`
first. Sentences are words of the vocabulary drawn by chance, others in each round, so that no cache answers.
Both sides get a round that does not count, then take turns. Printed are sentences a second (median of the
rounds, with the slowest and the fastest), their ratio, and the lowest cosine between a sentence's two
vectors in the last round.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sensorium import LocalEngine
from sensorium.client.bench.report import table
from sentence_transformers import SentenceTransformer

Vectors = npt.NDArray[np.float32]


def sentences(words: list[str], seed: int, options: argparse.Namespace) -> list[str]:
    """As many as asked for, of as many words."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(words, k=options.words)) for _ in range(options.sentences)]


def timed(embed: Callable[[list[str]], Vectors], texts: list[str]) -> tuple[float, Vectors]:
    """Texts a second, and the vectors."""
    began = time.perf_counter()
    vectors = embed(texts)
    return len(texts) / (time.perf_counter() - began), vectors


def measure(options: argparse.Namespace) -> None:
    """Both sides in turn."""
    torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.reference_dtype)
    other: Any = SentenceTransformer(str(options.folder), device="cpu", model_kwargs={"dtype": dtype})
    words = [
        each for each in other.tokenizer.get_vocab() if each.isascii() and each.isalpha() and len(each) > 2
    ]
    words.sort()

    def reference(texts: list[str]) -> Vectors:
        found: Vectors = other.encode(texts, batch_size=options.batch, convert_to_numpy=True)
        return found.astype(np.float32)

    with LocalEngine(str(options.folder), dtype=options.dtype, num_threads=options.threads) as engine:
        sides: dict[str, Callable[[list[str]], Vectors]] = {"ours": engine.embed, "theirs": reference}
        rates: dict[str, list[float]] = {name: [] for name in sides}
        vectors: dict[str, Vectors] = {}
        for number in range(options.rounds + 1):
            texts = sentences(words, number, options)
            names = list(sides) if number % 2 else list(reversed(sides))
            for name in names:
                rate, vectors[name] = timed(sides[name], texts)
                if number:
                    rates[name].append(rate)
            print(f"round {number} of {options.rounds}", file=sys.stderr)
    ours, theirs = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors.values())
    rows = [
        [name, dtype_name, *(f"{rate:.0f}" for rate in (median(each), min(each), max(each)))]
        for (name, each), dtype_name in zip(
            rates.items(), (options.dtype, options.reference_dtype), strict=True
        )
    ]
    print(table(["", "dtype", "sentences/s", "slowest", "fastest"], rows))
    ratios = [one / two for one, two in zip(rates["ours"], rates["theirs"], strict=True)]
    print(f"ratio {median(ratios):.2f} (median of rounds), lowest cosine {(ours * theirs).sum(1).min():.6f}")


def main() -> None:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--reference-dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32, help="of sentence-transformers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
