"""Steps of one text model, in several ways in turn: types, fewer bits, and by transformers' own code.

    python examples/benchmarks/bench_steps.py FOLDER [--ways bfloat16 int8 kv-int8 transformers] [--rows 1 16]

A step is a forward with its logits: so many sequences of `--context` tokens get one more each, or a prompt of
`--prompt` tokens is read. Ways take turns; medians and the fastest are printed beside the floor: the bytes of
weights, keys and values a step reads at the rate a gigabyte is read with in the same run. `kv-int8` keeps
keys and values in 8 bits, beside bfloat16.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from kernel_ceilings import Clock, measure_ceilings
from sensorium.engine.models import registry
from sensorium.engine.models.base import Model, RecurrentModel, RowContext, StepBatch
from sensorium.engine.models.source import Opening
from sensorium.engine.models.transformers.source import open_source
from sensorium.kernels.attention.kv_quantization import CODED
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch, with_tables
from sensorium.protocols.shared.json_file import read_json

BLOCK_SIZE = 16
WAYS = ("float32", "bfloat16", "int8", "int4", "kv-int8", "transformers")


def load(folder: Path, way: str) -> Model:
    """The folder's model, run in one of `WAYS`; fewer bits and transformers beside bfloat16."""
    if way == "transformers":
        config, device = read_json(folder / "config.json"), torch.device("cpu")
        opening = Opening(name=str(folder), folder=folder, config=config, device=device, dtype=torch.bfloat16)
        return open_source(opening).load()
    is_type = way in ("float32", "bfloat16")
    quantization = "none" if is_type or way == "kv-int8" else way
    return registry.open_model(
        folder,
        device="cpu",
        dtype=way if is_type else "bfloat16",
        quantization=quantization,
    ).load()


class Steps:
    """Steps of one model over a cache of its own."""

    def __init__(
        self, model: Model, num_sequences: int, num_tokens: int, dtype: torch.dtype, clock: Clock
    ) -> None:
        self._model, self._clock = model, clock
        self._groups = len(model.kv_shape.layout(dtype).groups)
        self.token_bytes = model.kv_shape.num_bytes(dtype)
        self._blocks = -(-num_tokens // BLOCK_SIZE)
        shape = model.kv_shape.cache_shape(self._groups * num_sequences * self._blocks, BLOCK_SIZE, dtype)
        # Written to, since zeros nobody wrote are one page of memory for all; 60 twice is a scale of 0.01.
        self._cache = torch.full(shape, 60, dtype=dtype)
        self._has_states = isinstance(model, RecurrentModel)
        if isinstance(model, RecurrentModel):
            model.make_states(num_sequences)

    def seconds(self, num_sequences: int, start: int, num_rows: int) -> float:
        """Of one step of `num_rows` tokens each, behind `start` others."""
        num, size = self._groups * num_sequences, self._blocks
        tables = [PagedSequence(range(i * size, (i + 1) * size), start, num_rows) for i in range(num)]
        of_groups = [tables[i : i + num_sequences] for i in range(0, num, num_sequences)]
        paged = paged_batch(of_groups[0], BLOCK_SIZE, self._model.device)
        more = tuple(with_tables(paged, each) for each in of_groups[1:])
        token_ids = torch.randint(0, self._model.info.vocab_size, (num_sequences * num_rows,))
        positions = torch.arange(start, start + num_rows).repeat(num_sequences)
        rows = RowContext(
            torch.arange(num_sequences) if self._has_states else None,
            prompt_lengths=(start + num_rows,) * num_sequences,
        )
        batch = StepBatch(token_ids, positions, paged, more_paged=more, rows=rows)
        began = self._clock()
        hidden = self._model.forward(batch, self._cache)
        self._model.logits(hidden[num_rows - 1 :: num_rows])
        return self._clock() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["bfloat16", "transformers"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--context", nargs="+", type=int, default=[200])
    parser.add_argument("--prompt", type=int, default=512, help="0: none")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="count CPU time, with one thread")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    torch.set_num_threads(arguments.threads)
    models = {way: load(arguments.folder, way) for way in arguments.ways}
    longest = max(max(arguments.context) + 1, arguments.prompt)
    steps = {
        way: Steps(model, max(arguments.rows), longest, CODED if way == "kv-int8" else model.dtype, clock)
        for way, model in models.items()
    }
    ceilings = measure_ceilings(torch.float32, 5)
    rate = ceilings.read
    print(f"read {rate / 1e9:.1f} GB/s, float32 products {ceilings.product / 1e9:.1f} GFLOP/s")
    shapes = [(rows, context, 1) for context in arguments.context for rows in arguments.rows]
    shapes += [(1, 0, arguments.prompt)] if arguments.prompt else []
    for rows, start, num in shapes:
        rounds = arguments.rounds if num == 1 else max(2, arguments.rounds // 4)
        times: dict[str, list[float]] = {way: [] for way in steps}
        with torch.inference_mode():
            for _ in range(rounds):
                for way, each in steps.items():
                    times[way].append(1000 * each.seconds(rows, start, num))
        for way, taken in times.items():
            read = models[way].weight_bytes + rows * (start + num) * steps[way].token_bytes
            floor = 1000 * read / rate
            print(
                f"{rows:3} x {num:4} behind {start:4}  {way:12} median {statistics.median(taken):8.2f} ms  "
                f"fastest {min(taken):8.2f} ms  floor of reading {floor:.2f} ms"
            )


if __name__ == "__main__":
    main()
