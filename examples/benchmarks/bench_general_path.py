"""How fast Qwen3-VL is through the general path of models that see, beside its native one.

    python examples/benchmarks/bench_general_path.py [--layers 28] [--depth 24] [--width 2048] [--threads 2]
        [--rounds 5] [--dtype float32]

The same random folder is loaded by both; its weights are bfloat16, as published ones are. Prompts and greedy
answers are checked to be equal. Contenders are
interleaved. A row has the medians of the rounds, the fastest round in brackets, and how fast the general path
is by the fastest: time to the first token of a question about a picture of 640 x 480 (encoding, prompt, one
token), and tokens a second of 1 and of 8 answers at a time. The defaults are the decoder and the vision tower
of Qwen3-VL-2B with a vocabulary of `--vocabulary` tokens; both copies are in memory at once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from sensorium.client.bench.bench import this_machine
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models import families, media_families
from sensorium.engine.models.prompts import Prompt
from sensorium.engine.models.registry import open_model
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.media.vision.pixel_rule import open_rule
from sensorium.protocols.chat.content import ChatMessage, MediaPart, Part, TextPart
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.engine.messages import Request, RequestId, Sample, SamplingParams
from support.step_loop import StepLoop
from support.vision_files import picture
from support.vl_folder import QWEN3_VL_2B, make_vl_folder

NUM_BLOCKS: Final = 512
BLOCK_SIZE: Final = 16
NUM_TOKENS: Final = 24
"""Of an answer whose speed is measured."""
MOST: Final = 8
QUESTION: Final = "What is in the picture?"
NATIVE: Final = "Qwen3VLForConditionalGeneration"


@contextmanager
def general_path() -> Iterator[None]:
    """Qwen3-VL is a family of the general path: its config is that of the one with experts."""
    kept, others = families.FAMILIES, media_families.ENTRIES
    families.FAMILIES = tuple(each for each in kept if each.architecture != NATIVE)
    more = media_families.MediaEntry(NATIVE, "qwen3_vl", ".qwen3_vl_moe")
    # Final in the product, where nothing chooses between the two.
    setattr(media_families, "ENTRIES", (*others, more))  # noqa: B010
    try:
        yield
    finally:
        families.FAMILIES = kept
        setattr(media_families, "ENTRIES", others)  # noqa: B010


class Contender:
    """One of the two: its model behind a scheduler and a runner."""

    def __init__(self, folder: Path, dtype: str, threads: int) -> None:
        source = open_model(folder, device="cpu", dtype=dtype)
        self.model = source.load()
        assert source.side.prompts is not None
        self.prompts, self.folder = source.side.prompts, folder
        runner = Runner(self.model, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, num_threads=threads)
        config = SchedulerConfig(
            num_blocks=NUM_BLOCKS,
            groups=self.model.kv_shape.layout(self.model.dtype).groups,
            block_size=BLOCK_SIZE,
            positions=source.positions,
            max_context=self.model.info.max_context,
        )
        self.scheduler = Scheduler(config)
        self.loop = StepLoop(self.scheduler, runner)
        self._number = self._num_slots = 0

    def prompt(self, seed: int | None) -> Prompt:
        """A question, about a picture of its own unless `seed` is None."""
        parts: tuple[Part, ...] = (TextPart(QUESTION),)
        media = []
        if seed is not None:
            assert self.prompts.media.pixels is not None
            parts = (MediaPart("image", b"", param="messages"), *parts)
            media = [
                open_rule(self.prompts.media.pixels, self.folder).prepare_picture(picture(480, 640, seed))
            ]
        message = ChatMessage(role="user", content=parts, extra={}, param="messages[0]")
        return self.prompts.chat(Conversation(messages=(message,), template_kwargs={}), media)

    def answer(self, prompt: Prompt, num_tokens: int, batch: int = 1) -> list[int]:
        """Answer `batch` such prompts at a time, none found in a cache; the first one's tokens."""
        slots = tuple(range(self._num_slots, self._num_slots + len(prompt.items)))
        self._num_slots += len(slots)
        for slot, item in zip(slots, prompt.items, strict=True):
            self.scheduler.encode(slot, item.features)
        ids = []
        for _ in range(batch):
            self._number += 1
            ids.append(RequestId(str(self._number)))
            request = Request(
                ids[-1],
                prompt.token_ids,
                Sample(SamplingParams(max_tokens=num_tokens, temperature=0.0)),
                media=prompt.spans,
                cache_salt=str(self._number),
            )
            self.scheduler.submit(request, None, slots)
        while self.loop.plan() or self.loop.in_flight:
            self.loop.finish()
        return self.loop.tokens[ids[0]]


def measure(
    contenders: list[Contender], rounds: int, run: Callable[[Contender, int], None]
) -> list[list[float]]:
    """Seconds of each contender's rounds, interleaved, in alternating order."""
    found: list[list[float]] = [[] for _ in contenders]
    for number in range(rounds + 1):
        order = range(len(contenders)) if number % 2 else reversed(range(len(contenders)))
        for index in order:
            began = time.perf_counter()
            run(contenders[index], number)
            if number:  # the first is to warm up
                found[index].append(time.perf_counter() - began)
    return found


def main() -> None:
    """Print a table of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=QWEN3_VL_2B.num_layers)
    parser.add_argument("--depth", type=int, default=QWEN3_VL_2B.vision_depth, help="layers of the tower")
    parser.add_argument("--width", type=int, default=QWEN3_VL_2B.hidden_size)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    options = parser.parse_args()
    shape = replace(
        QWEN3_VL_2B,
        num_layers=options.layers,
        hidden_size=options.width,
        intermediate_size=3 * options.width,
        vision_depth=options.depth,
        deepstack=tuple(options.depth * part // 4 for part in (1, 2, 3)),
        num_text_tokens=options.vocabulary,
        vocab_size=None,
    )
    print(
        this_machine(),
        f"{options.threads} threads, {options.dtype}, {shape.num_layers} + {options.depth} layers",
    )
    with tempfile.TemporaryDirectory() as path, torch.inference_mode():
        folder = make_vl_folder(Path(path), shape=shape, dtype=torch.bfloat16)  # as published
        native = Contender(folder, options.dtype, options.threads)
        with general_path():
            general = Contender(folder, options.dtype, options.threads)
        contenders = [native, general]
        shown = [[each.prompt(seed) for seed in range(options.rounds + 1)] for each in contenders]
        assert [each.token_ids for each in shown[0]] == [each.token_ids for each in shown[1]]
        answers = [each.answer(prompts[0], 8) for each, prompts in zip(contenders, shown, strict=True)]
        print("greedy answers of 8 tokens are", "equal" if answers[0] == answers[1] else "not equal")
        by_contender = dict(zip(map(id, contenders), shown, strict=True))
        words = native.prompt(None)
        rows: list[tuple[str, Callable[[Contender, int], None], int]] = [
            ("first token, ms", lambda each, n: _run(each, by_contender[id(each)][n], 1, 1), 0),
            ("tokens/s at 1", lambda each, _: _run(each, words, NUM_TOKENS, 1), NUM_TOKENS),
            (f"tokens/s at {MOST}", lambda each, _: _run(each, words, NUM_TOKENS, MOST), NUM_TOKENS * MOST),
        ]
        print(f"{'':16} {'native':>18} {'general':>18} {'general is':>10}")
        for name, run, num_tokens in rows:
            times = measure(contenders, options.rounds, run)
            cells = [_cell(each, num_tokens) for each in times]
            print(f"{name:16} {cells[0]:>18} {cells[1]:>18} {min(times[0]) / min(times[1]):>9.2f}x")


def _run(contender: Contender, prompt: Prompt, num_tokens: int, batch: int) -> None:
    contender.answer(prompt, num_tokens, batch)


def _cell(seconds: list[float], num_tokens: int) -> str:
    median, best = statistics.median(seconds), min(seconds)
    if num_tokens:
        return f"{num_tokens / median:.1f} ({num_tokens / best:.1f})"
    return f"{1000 * median:.0f} ({1000 * best:.0f})"


if __name__ == "__main__":
    main()
