"""How fast the engine's steps are beside `transformers`, on random weights of the whisper-base shape.

    python examples/benchmarks/bench_engine.py [--threads 2] [--rounds 15] [--dtype bfloat16 float32]

Contenders are interleaved; medians and the 10–90 % spread are printed, and the fastest round, which
means more on a busy machine. Both run the same weights; the numbers of tokens are fixed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from kernel_ceilings import Clock, every_round, spread, times_of
from transformers import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from sensorium.client.bench.bench import this_machine
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.registry import open_model
from sensorium.engine.planning.plan import EncodeStep, Plan, SequenceId, SequenceStart, SequenceStep
from sensorium.protocols.engine.messages import Features, RequestId, Sample, SamplingParams
from support.whisper_folder import WHISPER_BASE, make_whisper_folder

CONTEXT = 64  # tokens before a decode step
NUM_DRAFT = 32
UPDATE_DRAFT = 30  # tokens of the previous hypothesis in a realtime update
BATCH = 8
BLOCKS = 28  # of a sequence
SAMPLING = SamplingParams(max_tokens=400, stop_token_ids=(50257,), suppress_token_ids=tuple(range(90)))
PROMPT = (50258, 50259, 50359, 50363)


class Ours:
    """The engine's side: plans handed to a runner."""

    def __init__(self, folder: Path, dtype: str, threads: int, features: torch.Tensor) -> None:
        model = open_model(folder, device="cpu", dtype=dtype).load()
        self.runner = Runner(model, num_blocks=BATCH * BLOCKS, num_threads=threads)
        self.features = Features(tuple(features.shape), features.numpy().tobytes())
        self.encode(BATCH)
        self.step([7] * CONTEXT, 0, batch=BATCH)

    def encode(self, num: int = 1) -> None:
        """Encode windows, cross-attention keys and values included."""
        self.runner.execute(Plan(0, encodes=tuple(EncodeStep(slot, self.features) for slot in range(num))))

    def step(self, tokens: list[int], start: int, *, num_draft: int = 0, batch: int = 1) -> None:
        """One forward for `batch` sequences of the same length, each listening to its own window.

        Each time as new sequences, so that every round does the same.
        """
        num_known = start + len(tokens) - num_draft
        ids = [SequenceId(i) for i in range(batch)]
        steps = tuple(
            SequenceStep(
                sequence_id=i,
                token_ids=tuple(tokens),
                start=start,
                block_table=tuple(range(i * BLOCKS, (i + 1) * BLOCKS)),
                encoder_slot=i,
                num_draft=num_draft,
                begin=SequenceStart(RequestId(str(i)), (7,) * (num_known - 1), (7,), Sample(SAMPLING)),
            )
            for i in ids
        )
        self.runner.execute(Plan(0, ends=tuple(ids), sequences=steps))

    def update(self) -> None:
        """A realtime update: encode, check the previous hypothesis, decode two tokens on."""
        self.encode()
        self.step([*PROMPT, *[7] * UPDATE_DRAFT], 0, num_draft=UPDATE_DRAFT)
        for i in range(2):
            self.step([7], len(PROMPT) + UPDATE_DRAFT + i)


class Transformers:
    """The same work done by `transformers`."""

    def __init__(self, folder: Path, dtype: str, threads: int, features: torch.Tensor) -> None:
        self.threads = threads
        model: Any = transformers.WhisperForConditionalGeneration.from_pretrained(
            folder, dtype=getattr(torch, dtype)
        )
        self.model = model.eval()
        self.features = features[None].to(model.dtype)
        self.hidden = self.model.model.encoder(self.features).last_hidden_state
        self.caches = {batch: self._prefill(batch) for batch in (1, BATCH)}

    def encode(self) -> None:
        """The encoder alone."""
        torch.set_num_threads(self.threads)  # the other contender chooses its own for every step
        self.model.model.encoder(self.features)

    def _outputs(self, batch: int) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.hidden.expand(batch, -1, -1))

    def _prefill(self, batch: int) -> EncoderDecoderCache:
        ids = torch.full((batch, CONTEXT), 7)
        outputs = self.model(encoder_outputs=self._outputs(batch), decoder_input_ids=ids)
        return cast(EncoderDecoderCache, outputs.past_key_values)

    def step(self, num_tokens: int, *, batch: int = 1) -> None:
        """One forward of new tokens behind CONTEXT cached ones, and the choice of the best token."""
        torch.set_num_threads(self.threads)
        cache = self.caches[batch]
        ids = torch.full((batch, num_tokens), 7)
        logits = self.model(
            encoder_outputs=self._outputs(batch), decoder_input_ids=ids, past_key_values=cache
        ).logits
        logits.float().argmax(-1)
        cache.self_attention_cache.crop(-num_tokens)


def report(title: str, times: dict[str, list[float]]) -> None:
    """One line per contender."""
    for name, values in times.items():
        median, low, high = spread([1000 * value for value in values])
        print(
            f"{title:<38} {name:<13} median {median:8.2f} ms"
            f"   {low:8.2f} – {high:8.2f}   fastest {1000 * min(values):8.2f}",
            flush=True,
        )


@torch.inference_mode()
def bench(folder: Path, dtype: str, threads: int, rounds: int, clock: Clock) -> None:
    """All comparisons in one dtype."""
    features = torch.randn(80, 3000, generator=torch.Generator().manual_seed(1))
    ours = Ours(folder, dtype, threads, features)
    theirs = Transformers(folder, dtype, threads, features)

    def measure(contenders: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
        return times_of({name: every_round(run) for name, run in contenders.items()}, rounds, clock)

    report(f"{dtype} encode one window", measure({"ours": ours.encode, "transformers": theirs.encode}))
    for batch in (1, BATCH):
        contenders: dict[str, Callable[[], object]] = {
            "ours": partial(ours.step, [7], CONTEXT, batch=batch),
            "transformers": partial(theirs.step, 1, batch=batch),
        }
        report(f"{dtype} decode step, batch {batch}", measure(contenders))
    draft = [7] * (NUM_DRAFT + 1)
    contenders = {
        "ours": lambda: ours.step(draft, CONTEXT, num_draft=NUM_DRAFT),
        "transformers": lambda: theirs.step(NUM_DRAFT + 1),
    }
    report(f"{dtype} verify {NUM_DRAFT} draft tokens", measure(contenders))
    times = measure({"update": ours.update, "encode": ours.encode})
    report(f"{dtype} update of a full window", times)
    ratios = [a / b for a, b in zip(times["update"], times["encode"], strict=True)]
    print(
        f"{dtype} update / encode alone: median {statistics.median(ratios):.3f}, "
        f"fastest / fastest {min(times['update']) / min(times['encode']):.3f}"
    )


def main() -> None:
    """Build the random checkpoint, print the machine, run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument(
        "--cpu-time", action="store_true", help="count CPU time: steadier with one thread on a busy machine"
    )
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    torch.set_num_threads(arguments.threads)
    print(
        f"{this_machine().processor}, {arguments.threads} threads, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, whisper-base shape, "
        f"{arguments.rounds} rounds, {clock.__name__}"
    )
    with tempfile.TemporaryDirectory() as directory:
        folder = make_whisper_folder(Path(directory), shape=WHISPER_BASE)
        for dtype in arguments.dtype:
            bench(folder, dtype, arguments.threads, arguments.rounds, clock)


if __name__ == "__main__":
    main()
