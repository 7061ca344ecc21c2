"""How much of conversations' beginnings is found in the prefix caches of two replicas.

    python examples/benchmarks/bench_prefix_routing.py [--conversations 7] [--turns 10] [--num-blocks 512]

The turns of all conversations are asked in one shuffled order, each with all turns before it and no system
prompt. They go to one engine with all blocks; to `--replicas 2` with half of the blocks each; and to two
servers with half of the blocks each, in turn and at random. Printed are the prompt tokens that each found in
its caches, as `/metrics` counts them, and their ratio to those of the one engine. Counted, not timed.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Final

import httpx
from bench_lanes import serving

MODEL: Final = "tiny-qwen3-vl"
WORDS: Final = (
    "river",
    "lamp",
    "stone",
    "paper",
    "green",
    "seven",
    "window",
    "letter",
    "cloud",
    "apple",
    "north",
    "candle",
)
WORDS_PER_TURN: Final = 24
ANSWER_TOKENS: Final = 16
_COUNTER: Final = re.compile(r"^sensorium_prefix_cache_(hits|queries)_total(?:{[^}]*})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Plan:
    """What is asked, equal for all."""

    turns: tuple[tuple[str, ...], ...]
    """Of each conversation."""
    order: tuple[int, ...]
    """Numbers of conversations, each as often as it has turns."""


def make_plan(num_conversations: int, num_turns: int, seed: int) -> Plan:
    """Conversations of random words."""
    rng = random.Random(seed)
    turns = tuple(
        tuple(" ".join(rng.choices(WORDS, k=WORDS_PER_TURN)) for _ in range(num_turns))
        for _ in range(num_conversations)
    )
    order = [number for number in range(num_conversations) for _ in range(num_turns)]
    rng.shuffle(order)
    return Plan(turns, tuple(order))


def ask_all(plan: Plan, urls: Sequence[str], choose: Callable[[], int]) -> tuple[int, int]:
    """Prompt tokens that were found, and those that were looked up, at all of `urls`."""
    histories: list[list[dict[str, str]]] = [[] for _ in plan.turns]
    num_asked = [0] * len(plan.turns)
    with httpx.Client(timeout=120) as http:
        for number in plan.order:
            history = histories[number]
            history.append({"role": "user", "content": plan.turns[number][num_asked[number]]})
            num_asked[number] += 1
            body = {
                "model": MODEL,
                "messages": history,
                "temperature": 0,
                "max_tokens": ANSWER_TOKENS,
                "ignore_eos": True,
            }
            answer = http.post(f"{urls[choose()]}/v1/chat/completions", json=body).raise_for_status().json()
            history.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        totals = {"hits": 0, "queries": 0}
        for url in urls:
            for name, value in _COUNTER.findall(http.get(f"{url}/metrics").text):
                totals[name] += int(float(value))
    return totals["hits"], totals["queries"]


def main() -> None:
    """Read the options, and ask each set of engines in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int, default=7)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--num-blocks", type=int, default=512, help="blocks of all engines together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    plan = make_plan(options.conversations, options.turns, options.seed)
    in_turn, rng = count(), random.Random(options.seed)
    kinds: Sequence[tuple[str, int, int, Sequence[str], Callable[[], int]]] = (
        ("one engine", 1, 1, (), lambda: 0),
        ("two replicas", 1, 2, ("--replicas", "2"), lambda: 0),
        ("round robin", 2, 2, (), lambda: next(in_turn) % 2),
        ("random", 2, 2, (), lambda: rng.randrange(2)),
    )
    of_one = 0
    for name, num_servers, num_engines, arguments, choose in kinds:
        common = [MODEL, "--max-context", "2048", "--num-threads", "1", "--log-level", "error"]
        common += ["--num-blocks", str(options.num_blocks // num_engines), *arguments]
        with ExitStack() as stack:
            urls = [stack.enter_context(serving(common))[0] for _ in range(num_servers)]
            hits, queries = ask_all(plan, urls, choose)
        of_one = of_one or hits
        print(f"{name:12} {hits:6} of {queries} prompt tokens found, {hits / of_one:.3f} of one engine")


if __name__ == "__main__":
    main()
