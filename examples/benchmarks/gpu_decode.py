"""Whole decode steps of a random Qwen3-0.6B on a GPU, through the runner: kernels launched one by one, and
replayed as CUDA graphs. `examples/benchmarks/gpu_kernels.py` calls it.

    python examples/benchmarks/gpu_decode.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.base import Model
from sensorium.engine.models.registry import open_model
from sensorium.engine.planning.plan import Plan, SequenceId, SequenceStart, SequenceStep
from sensorium.protocols.engine.messages import RequestId, Sample, SamplingParams, TokensSampled

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.text_folder import QWEN3_0_6B, QwenShape, make_qwen3_folder

BLOCK, PROMPT, BATCHES = 16, 512, (1, 4, 16, 64, 256)


class Steps:
    """`batch` sequences with a prompt of their own, one token further with each step."""

    def __init__(self, runner: Runner, batch: int, num_steps: int, first_id: int, prompt: int) -> None:
        self._runner, self._batch, self._first_id, self._start = runner, batch, first_id, prompt
        self._width = -(-(prompt + num_steps) // BLOCK)
        self.tokens: list[tuple[int, ...]] = []
        sampling = SamplingParams(max_tokens=num_steps + 1, ignore_eos=True)
        vocab = runner.info.vocab_size
        for index in range(batch):
            ids = tuple((index * 7919 + 31 * position) % vocab for position in range(prompt))
            begin = SequenceStart(RequestId(f"s{first_id + index}"), ids, (), Sample(sampling))
            step = SequenceStep(SequenceId(first_id + index), ids, 0, self._table(index), begin=begin)
            runner.execute(Plan(0, sequences=(step,)))

    def _table(self, index: int) -> tuple[int, ...]:
        return tuple(range(index * self._width, (index + 1) * self._width))

    def step(self) -> float:
        """Seconds of one, on the host's clock: its answer is on the host."""
        sequences = tuple(
            SequenceStep(SequenceId(self._first_id + i), (), self._start, self._table(i), feeds_sampled=True)
            for i in range(self._batch)
        )
        begun = time.perf_counter()
        result = self._runner.execute(Plan(0, sequences=sequences))
        span = time.perf_counter() - begun
        self._start += 1
        sampled = (each for each in result.outcomes if isinstance(each, TokensSampled))
        self.tokens.append(tuple(token for each in sampled for token in each.token_ids))
        return span

    def end(self) -> None:
        """Forget the sequences."""
        self._runner.execute(Plan(0, ends=tuple(SequenceId(self._first_id + i) for i in range(self._batch))))


def compare(model: Model, batches: tuple[int, ...], rounds: int, prompt: int) -> None:
    """Print a line for each batch: milliseconds of a step either way, and how many first tokens agree."""
    blocks = max(batches) * -(-(prompt + rounds + 5) // BLOCK)
    times: dict[tuple[bool, int], float] = {}
    tokens: dict[tuple[bool, int], tuple[int, ...]] = {}
    for replayed in (False, True):
        runner = Runner(
            model, num_blocks=blocks, block_size=BLOCK, cuda_graphs=replayed, max_running=max(batches)
        )
        runner.warm_up()
        for place, batch in enumerate(batches):
            steps = Steps(runner, batch, rounds + 4, 1000 * (place + 1), prompt)
            for _ in range(4):
                steps.step()
            times[replayed, batch] = statistics.median(steps.step() for _ in range(rounds))
            tokens[replayed, batch] = steps.tokens[0]
            steps.end()
        del runner
    print("\n| sequences | launched, ms | replayed, ms | tokens/s replayed | same first tokens |")
    print("|---|---|---|---|---|")
    for batch in batches:
        plain, graph = times[False, batch], times[True, batch]
        same = sum(a == b for a, b in zip(tokens[False, batch], tokens[True, batch], strict=True))
        print(
            f"| {batch} | {plain * 1e3:.2f} | {graph * 1e3:.2f} | {batch / graph:.0f} | {same} of {batch} |",
            flush=True,
        )


def decode_steps(device: torch.device, rounds: int, shape: QwenShape = QWEN3_0_6B) -> None:
    """Make the model, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        path = make_qwen3_folder(Path(folder) / "model", seed=0, shape=shape, dtype=torch.bfloat16)
        model = open_model(path, device=str(device), dtype="bfloat16").load()
    print(f"\nDecode steps of Qwen3-0.6B (random, bfloat16) behind {PROMPT} tokens:")
    compare(model, BATCHES, rounds, PROMPT)


def main() -> int:
    """Number to exit with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds: int = parser.parse_args().rounds
    if not torch.cuda.is_available():
        print("there is no CUDA device here: nothing to measure")
        return 2
    decode_steps(torch.device("cuda", torch.cuda.current_device()), rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
