"""Each kernel at the shapes of Qwen3-0.6B beside its torch reference, as a share of what the machine can do.

    python examples/benchmarks/bench_kernels.py [--threads 1 2] [--dtype bfloat16] [--only linear]

Ceilings are measured in the same run: reading a gigabyte, and a large matrix product. A kernel's floor is
the larger of its bytes over the one and its operations over the other; `share` is the floor over the fastest
round, since ceilings are of the fastest round too. Contenders are interleaved and work on data that no cache
holds (but for what lies between products); medians and the 10–90 % spread are printed. Linear products are
also compared with oneDNN's packed product, which `linear` uses for many rows.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from functools import partial

import torch
from kernel_ceilings import Ceilings, every_round, measure_ceilings, report
from sensorium.client.bench.bench import this_machine
from sensorium.kernels.argmax import argmax, argmax_reference
from sensorium.kernels.attention.cross_attention import (
    CrossSpan,
    cross_attention,
    cross_attention_by_products,
)
from sensorium.kernels.attention.kv_cache import write_kv, write_kv_reference
from sensorium.kernels.attention.kv_quantization import CODED, stored_size
from sensorium.kernels.attention.paged_attention import (
    PagedBatch,
    PagedSequence,
    paged_attention,
    paged_attention_reference,
    paged_batch,
)
from sensorium.kernels.linear.float32_tiles import TiledWeight
from sensorium.kernels.linear.linear import DenseWeight, linear, linear_reference, pack_linear
from sensorium.kernels.linear.onednn import can_pack, packed_by_onednn
from sensorium.kernels.linear.quantized_linear import BitsWeight, linear_bits, quantize_linear
from sensorium.kernels.linear.weight_codes import GRIDS
from sensorium.kernels.native import library
from sensorium.kernels.rms_norm import rms_norm, rms_norm_reference
from sensorium.kernels.rotary import apply_rotary, apply_rotary_reference, rotary_table
from sensorium.kernels.silu_mul import silu_mul
from torch import Tensor

HIDDEN, HEADS, KV_HEADS, DIM, MIDDLE, VOCAB, LAYERS, BLOCK = 1024, 16, 8, 128, 3072, 151_936, 28, 16
PROJECTIONS = {
    "qkv": (2 * HEADS * DIM, HIDDEN),
    "out": (HIDDEN, HEADS * DIM),
    "gate_up": (2 * MIDDLE, HIDDEN),
    "down": (HIDDEN, MIDDLE),
    "head": (VOCAB, HIDDEN),
}
ROWS = (1, 2, 4, 8, 16, 32, 128, 512, 2048)
COLD_BYTES = 200_000_000  # more than any cache holds
CPU = torch.device("cpu")
Work = Callable[[], object]


def bench_linear(dtype: torch.dtype, at: Ceilings, rounds: int, num_rows: tuple[int, ...]) -> None:
    """All projections of a layer and the head."""
    for name, (out, size) in PROJECTIONS.items():
        weights = [
            torch.randn(out, size).to(dtype)
            for _ in range(max(1, COLD_BYTES // (out * size * dtype.itemsize)))
        ]
        packed = [pack_linear(weight) for weight in weights]
        others = [
            DenseWeight(packed_by_onednn(each), None, packed=True)
            if can_pack(each)
            else DenseWeight(each, None, packed=False)
            for each in weights
        ]
        for rows in num_rows:
            if name == "head" and rows > 32:
                continue  # only rows that are sampled meet the head
            x = torch.randn(rows, size).to(dtype)
            _report_linear(f"{name} rows {rows}", x, packed, others, weights, at, rounds)


def _report_linear(
    title: str,
    x: Tensor,
    packed: list[DenseWeight | TiledWeight],
    others: list[DenseWeight],
    weights: list[Tensor],
    at: Ceilings,
    rounds: int,
) -> None:
    out, size = weights[0].shape
    num, rows = len(weights), x.shape[0]
    report(
        title,
        {
            "ours": lambda number: linear(x, packed[number % num]),
            "oneDNN": lambda number: linear(x, others[(number + num // 3) % num]),
            "F.linear": lambda number: linear_reference(x, weights[number % num], None),
        },
        (out * size + rows * (out + size)) * x.itemsize,
        2.0 * rows * out * size,
        at,
        rounds,
    )


def bench_bits(dtype: torch.dtype, at: Ceilings, rounds: int, num_rows: tuple[int, ...]) -> None:
    """The same projections in 8 and 4 bits, beside the packed weight of `dtype`."""
    for name, (out, size) in PROJECTIONS.items():
        weight = torch.randn(out, size).to(dtype)
        num = max(2, COLD_BYTES // (weight.nbytes // 4))  # the smallest must be cold, too
        packed = [pack_linear(weight) for _ in range(max(2, COLD_BYTES // weight.nbytes))]
        for kind, grid in GRIDS.items():
            if grid is None:
                continue
            codes = [quantize_linear(weight, None, grid) for _ in range(num if name != "head" else 2)]
            for rows in num_rows:
                if name != "head" or rows <= 32:
                    _report_bits(f"{name} {kind} rows {rows}", dtype, rows, codes, packed, at, rounds)


def _report_bits(
    title: str,
    dtype: torch.dtype,
    rows: int,
    codes: list[BitsWeight],
    packed: list[DenseWeight | TiledWeight],
    at: Ceilings,
    rounds: int,
) -> None:
    out, size = codes[0].out, codes[0].size
    x = torch.randn(rows, size).to(dtype)
    report(
        title,
        {
            "ours": lambda number: linear_bits(x, codes[number % len(codes)]),
            str(dtype).removeprefix("torch."): lambda number: linear(x, packed[number % len(packed)]),
        },
        codes[0].packed.nbytes + rows * (out + size) * x.itemsize,
        2.0 * rows * out * size,
        at,
        rounds,
    )


def _attend_layer(
    attend: Callable[[Tensor, Tensor, PagedBatch], Tensor],
    query: Tensor,
    cache: Tensor,
    batch: PagedBatch,
    number: int,
) -> Tensor:
    return attend(query, cache[number % cache.shape[0]], batch)


def bench_attention(dtype: torch.dtype, at: Ceilings, rounds: int) -> None:
    """Decode, draft checks, prompts and a chunk behind a long context; blocks lie scattered."""
    blocks = 1400
    cache = torch.randn(3, blocks, 2, KV_HEADS, BLOCK, DIM).to(dtype)
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(1)).tolist()
    cases = {
        **{f"decode 1 × {context}": [(context, 1)] for context in (100, 1000, 4000)},
        **{f"decode 16 × {context}": [(context, 1)] * 16 for context in (100, 500, 1000)},
        "draft 8 at 500": [(500, 8)],
        "draft 33 at 500": [(500, 33)],
        "prompt 512": [(0, 512)],
        "prompt 2048": [(0, 2048)],
        "512 behind 4096": [(4096, 512)],
    }
    for title, spans in cases.items():
        free = iter(order)
        batch = paged_batch(
            [PagedSequence([next(free) for _ in range(-(-(s + n) // BLOCK))], s, n) for s, n in spans],
            BLOCK,
            CPU,
        )
        query = torch.randn(sum(n for _, n in spans), HEADS, DIM).to(dtype)
        num_attended = sum(sum(range(s + 1, s + n + 1)) for s, n in spans)
        ours = partial(_attend_layer, paged_attention, query, cache, batch)
        plain = partial(_attend_layer, paged_attention_reference, query, cache, batch)
        report(
            title,
            {"ours": ours, "torch": plain},
            sum(s + n for s, n in spans) * 2 * KV_HEADS * DIM * dtype.itemsize,
            4.0 * HEADS * DIM * num_attended,
            at,
            rounds if num_attended < 1e6 else 3,
        )


def bench_kv(dtype: torch.dtype, at: Ceilings, rounds: int) -> None:
    """The same over keys and values of 8 bits, beside those of `dtype`; every round has blocks of its own."""
    num_blocks = 4200
    caches = {
        "int8": torch.full((num_blocks, 2, KV_HEADS, BLOCK, stored_size(DIM, CODED)), 60, dtype=CODED),
        str(dtype).removeprefix("torch."): torch.randn(num_blocks, 2, KV_HEADS, BLOCK, DIM).to(dtype),
    }
    order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(1)).tolist()
    cases = {f"decode {num} × {context}": [(context, 1)] * num for context in (500, 4000) for num in (1, 16)}
    cases |= {"draft 33 at 500": [(500, 33)], "prompt 512": [(0, 512)]}
    for title, spans in cases.items():
        widths = [-(-(start + num) // BLOCK) for start, num in spans]
        batches = []
        for turn in range(num_blocks // sum(widths)):
            free = iter(order[turn * sum(widths) :])
            tables = [list(itertools.islice(free, width)) for width in widths]
            sequences = [PagedSequence(table, *span) for table, span in zip(tables, spans, strict=True)]
            batches.append(paged_batch(sequences, BLOCK, CPU))
        query = torch.randn(sum(num for _, num in spans), HEADS, DIM).to(dtype)
        report(
            title,
            {name: partial(_attend_turn, query, cache, batches) for name, cache in caches.items()},
            sum(start + num for start, num in spans) * 2 * KV_HEADS * stored_size(DIM, CODED),
            4.0 * HEADS * DIM * sum(sum(range(start + 1, start + num + 1)) for start, num in spans),
            at,
            rounds,
        )


def _attend_turn(query: Tensor, cache: Tensor, batches: Sequence[PagedBatch], number: int) -> Tensor:
    return paged_attention(query, cache, batches[number % len(batches)])


def _listen(
    attend: Callable[[Tensor, Sequence[CrossSpan]], Tensor],
    query: Tensor,
    spans: Sequence[Sequence[CrossSpan]],
    number: int,
) -> Tensor:
    return attend(query, spans[number % len(spans)])


def bench_cross(dtype: torch.dtype, at: Ceilings, rounds: int) -> None:
    """Whisper base's decoder and encodings of 30 s: answers side by side, one alone, and its draft."""
    heads, positions, dim, layers = 8, 1500, 64, 12
    cases = {"answer 8": [1] * 8, "answer 1": [1], "draft of 24": [24], "drafts 4 × 6": [6] * 4}
    for title, lengths in cases.items():
        ends = list(itertools.accumulate(lengths))
        spans = [
            [
                CrossSpan(end - length, end, torch.randn(2, heads, positions, dim).to(dtype))
                for end, length in zip(ends, lengths, strict=True)
            ]
            for _ in range(layers)
        ]
        query = torch.randn(ends[-1], heads, dim).to(dtype)
        report(
            f"cross-attention, {title}",
            {
                "ours": partial(_listen, cross_attention, query, spans),
                "torch": partial(_listen, cross_attention_by_products, query, spans),
            },
            len(lengths) * 2 * heads * positions * dim * dtype.itemsize,
            4.0 * heads * dim * positions * ends[-1],
            at,
            5 * rounds,
        )


def bench_rest(dtype: torch.dtype, at: Ceilings, rounds: int) -> None:
    """What lies between the products, at 1, 16 and 512 rows; data is warm, as a step leaves it."""
    norm, head_norm = torch.rand(HIDDEN).to(dtype), torch.rand(DIM).to(dtype)
    cache = torch.zeros(200, 2, KV_HEADS, BLOCK, DIM, dtype=dtype)
    for rows in (1, 16, 512):
        x, qkv = torch.randn(rows, HIDDEN).to(dtype), torch.randn(rows, HEADS + 2 * KV_HEADS, DIM).to(dtype)
        gate_up, table = (
            torch.randn(rows, 2 * MIDDLE).to(dtype),
            rotary_table(torch.arange(rows), torch.rand(64)),
        )
        query, key, value = qkv.tensor_split((HEADS, HEADS + KV_HEADS), 1)
        slots = torch.randperm(3200)[:rows]
        logits = torch.randn(min(rows, 16), VOCAB)
        pairs: dict[str, tuple[Work, Work, int]] = {
            "rms_norm": (
                partial(rms_norm, x, norm, 1e-6),
                partial(rms_norm_reference, x, norm, 1e-6),
                2 * x.nbytes,
            ),
            "rms_norm of heads": (
                partial(rms_norm, query, head_norm, 1e-6),
                partial(rms_norm_reference, query, head_norm, 1e-6),
                2 * query.nbytes,
            ),
            "rotary": (
                partial(apply_rotary, query, table),
                partial(apply_rotary_reference, query, table),
                2 * query.nbytes,
            ),
            "write_kv": (
                partial(write_kv, cache, slots, key, value),
                partial(write_kv_reference, cache, slots, key, value),
                4 * key.nbytes,
            ),
            "argmax": (partial(argmax, logits), partial(argmax_reference, logits), logits.nbytes),
            "silu_mul": (
                partial(silu_mul, gate_up),
                partial(silu_mul, gate_up.clone()),
                gate_up.nbytes * 3 // 2,
            ),
        }
        for name, (ours, reference, num_bytes) in pairs.items():
            report(
                f"{name} rows {rows}",
                {"ours": every_round(ours), "torch": every_round(reference)},
                num_bytes,
                0.0,
                at,
                5 * rounds,
            )


@torch.inference_mode()
def main() -> None:
    """Print a table for each type and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[torch.get_num_threads()])
    parser.add_argument("--dtype", nargs="+", default=["bfloat16"], choices=["bfloat16", "float32"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="of linear products")
    parser.add_argument("--only", choices=["linear", "bits", "attention", "kv", "cross", "rest"])
    options = parser.parse_args()
    rows = tuple(options.rows)
    benches: dict[str, Callable[[torch.dtype, Ceilings, int], None]] = {
        "linear": partial(bench_linear, num_rows=rows),
        "bits": partial(bench_bits, num_rows=rows),
        "attention": bench_attention,
        "kv": bench_kv,
        "cross": bench_cross,
        "rest": bench_rest,
    }
    processor = this_machine().processor
    print(f"{processor}, torch {torch.__version__}, C kernels {'yes' if library() else 'no'}")
    for name in options.dtype:
        dtype: torch.dtype = getattr(torch, name)
        weights = (
            LAYERS * sum(o * i for o, i in list(PROJECTIONS.values())[:4]) + VOCAB * HIDDEN
        ) * dtype.itemsize
        for threads in options.threads:
            torch.set_num_threads(threads)
            at = measure_ceilings(dtype, options.rounds)
            print(
                f"\n{name}, {threads} threads: reads {at.read / 1e9:.1f} GB/s,"
                f" products {at.product / 1e9:.0f} GFLOP/s; one token's weights"
                f" ({weights / 1e9:.2f} GB) take {weights / at.read * 1e3:.0f} ms at least"
            )
            for kind, bench in benches.items():
                if options.only in (None, kind):
                    bench(dtype, at, options.rounds)


if __name__ == "__main__":
    main()
