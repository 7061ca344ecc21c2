"""Embeds the same sentences with `LocalEngine.embed` and with `sentence-transformers`, in turn.

    python examples/benchmarks/bench_embeddings.py FOLDER [--dtype bfloat16] [--reference-dtype float32]
        [--rounds 7] [--threads 2]
    python examples/benchmarks/bench_embeddings.py FOLDER --beside CHAT_FOLDER [--clients 16] [--rounds 7]

FOLDER is a sentence-transformers folder with a word-piece vocabulary; `pip install sentence-transformers`
first. Sentences are words of the vocabulary drawn by chance, others in each round, so that no cache answers.
Both sides get a round that does not count, then take turns. Printed are sentences a second (median of the
rounds, with the slowest and the fastest), their ratio, and the lowest cosine between a sentence's two
vectors in the last round.

With `--beside` a server runs both models. In each round as many chats as `--clients` are streamed twice:
alone, and while as many others have one sentence after the other embedded. Printed are the gaps between two
pieces of an answer: median, 99th percentile and largest of each round (median of the rounds), and the largest
as a multiple of the median. The clients share the machine with the server.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import httpx
import numpy as np
import numpy.typing as npt
import torch
from bench_lanes import serving
from sensorium import LocalEngine
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile

Vectors = npt.NDArray[np.float32]
WORDS = Path(__file__).read_text(encoding="utf-8").split()
"""Of the sentences that are embedded beside chats."""


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
    from sentence_transformers import SentenceTransformer  # not needed beside chats

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


def is_piece(line: str) -> bool:
    """Whether a line of a stream has a piece of the answer."""
    return line.startswith("data: {") and bool(json.loads(line[6:])["choices"][0]["delta"].get("content"))


async def chat(http: httpx.AsyncClient, model: str, name: str, options: argparse.Namespace) -> list[float]:
    """The gaps between the pieces of one answer, in milliseconds."""
    message = {"role": "user", "content": f"{name}: tell me about the sea."}
    body = {
        "model": model,
        "messages": [message],
        "max_tokens": options.tokens,
        "ignore_eos": True,
        "stream": True,
    }
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        answer.raise_for_status()
        times = [time.perf_counter() async for line in answer.aiter_lines() if is_piece(line)]
    return [1e3 * (later - earlier) for earlier, later in itertools.pairwise(times)]


async def chats(
    url: str, models: tuple[str, str], seed: int, options: argparse.Namespace, *, embeds: bool
) -> tuple[list[float], int]:
    """The gaps of all chats of a round, and how many sentences were embedded meanwhile."""
    gaps: list[float] = []
    num_embedded = 0
    chance = random.Random(seed)

    async def embed() -> None:
        nonlocal num_embedded
        while True:
            text = " ".join(chance.choices(WORDS, k=options.words))
            body = {"model": models[0], "input": text}
            (await http.post("/v1/embeddings", json=body)).raise_for_status()
            num_embedded += 1

    async def ask(number: int) -> None:
        gaps.extend(await chat(http, models[1], f"{seed} {number}", options))

    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as http,
        anyio.create_task_group() as others,
    ):
        for _ in range(options.clients if embeds else 0):
            others.start_soon(embed)
        async with anyio.create_task_group() as asking:
            for number in range(options.clients):
                asking.start_soon(ask, number)
        others.cancel_scope.cancel()
    return gaps, num_embedded


def measure_beside(options: argparse.Namespace) -> None:
    """Chats alone and beside embeddings, in turn."""
    models = (options.folder.name, options.beside.name)
    arguments = ["--dtype", options.dtype, "--no-console", str(options.beside), str(options.folder)]
    found: dict[bool, list[list[float]]] = {False: [], True: []}
    num_embedded: list[int] = []
    with serving(arguments, is_silent=True) as (url, _):
        for number in range(options.rounds + 1):
            for embeds in (False, True) if number % 2 else (True, False):
                run = partial(chats, url, models, number, options, embeds=embeds)
                gaps, num = anyio.run(run)
                if number:
                    found[embeds].append([percentile(gaps, 50), percentile(gaps, 99), max(gaps)])
                    num_embedded += [num] if embeds else []
            print(f"round {number} of {options.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    rows = []
    for embeds, rounds in found.items():
        ratios = [largest / middle for middle, _, largest in rounds]
        middle, late, largest = (median(each) for each in zip(*rounds, strict=True))
        times = [f"{each:.0f}" for each in (middle, late, largest)]
        ratio = f"{median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
        rows.append(["beside embeddings" if embeds else "alone", *times, ratio])
    print(table(["chats", "gap p50 ms", "p99", "largest", "largest / p50"], rows))
    print(f"{median(num_embedded):.0f} sentences embedded in a round")


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
    parser.add_argument("--beside", type=Path, help="the folder of a model to chat with")
    parser.add_argument("--clients", type=int, default=16, help="chats, and as many that embed")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    options = parser.parse_args()
    if options.beside is None:
        measure(options)
    else:
        measure_beside(options)


if __name__ == "__main__":
    main()
