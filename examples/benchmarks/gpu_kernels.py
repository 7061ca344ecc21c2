"""Check each Triton kernel against its torch reference on the shapes of Qwen3, and time it on a GPU.

    python examples/benchmarks/gpu_kernels.py [--dtype bfloat16] [--only attention] [--no-decode]

Prints Markdown for `docs/performance/kernels.md`: time (median of rounds between CUDA events, with caches
emptied in between), rate, and the share of what this card does in the same run at a large copy (bytes) or a
large product (operations). A kernel's floor is the larger of its bytes over the one and its operations over
the other. Then whole decode steps of a random Qwen3-0.6B, launched and replayed
(`examples/benchmarks/gpu_decode.py`).

Ends with 1 if a kernel differs from its reference, with 2 if there is no CUDA device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from sensorium.kernels.argmax import argmax, argmax_reference
from sensorium.kernels.attention.attention_inputs import HeadNorms, attention_inputs
from sensorium.kernels.attention.kv_cache import write_kv, write_kv_reference
from sensorium.kernels.attention.paged_attention import (
    PagedBatch,
    PagedSequence,
    paged_attention,
    paged_attention_reference,
    paged_batch,
)
from sensorium.kernels.gpu.jit import has_triton
from sensorium.kernels.rms_norm import rms_norm, rms_norm_reference
from sensorium.kernels.rotary import apply_rotary, apply_rotary_reference, rotary_table
from sensorium.kernels.sampling import Filters, draw, draw_reference
from sensorium.kernels.silu_mul import silu_mul, silu_mul_reference
from torch import Tensor

BLOCK, VOCAB = 16, 151_936
MAX_CACHE_BYTES = 6 << 30
"""Cases whose keys and values of one layer take more are left out."""
FLUSH_BYTES = 256 << 20  # more than any L2 cache
TOLERANCE = {torch.bfloat16: 2**-6, torch.float16: 2**-9, torch.float32: 1e-5}
Work = Callable[[], object]


@dataclass(frozen=True)
class Shape:
    """What one layer of a Qwen3 has."""

    name: str
    hidden: int
    heads: int
    kv_heads: int
    middle: int
    dim: int = 128


SHAPES = (
    Shape("0.6B", 1024, 16, 8, 3072),
    Shape("1.7B", 2048, 16, 8, 6144),
    Shape("8B", 4096, 32, 8, 12_288),
)
DECODES = (1, 16, 64, 256)
PREFILLS = (512, 2048, 8192)
CONTEXTS = (1024, 8192, 32_768)


@dataclass(frozen=True)
class Case:
    """One kernel at one shape: what it must read and write, what it must compute, how far off it is."""

    kernel: str
    shape: str
    work: Work
    num_bytes: float
    operations: float
    error: Callable[[], float]
    """Largest difference from the reference, see `difference`."""
    tolerance: float


@dataclass(frozen=True)
class Ceilings:
    """Bytes and operations a second."""

    copy: float
    product: float


class Clock:
    """Times work on the device, with its caches emptied before each round."""

    def __init__(self, device: torch.device, rounds: int) -> None:
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
        self._rounds = rounds

    def measure(self, work: Work) -> float:
        """Median seconds."""
        for _ in range(3):
            work()
        spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        for _ in range(self._rounds):
            start, end = (torch.cuda.Event(True) for _ in range(2))  # type: ignore[no-untyped-call]
            self._flush.zero_()
            start.record()
            work()
            end.record()
            spans.append((start, end))
        torch.cuda.synchronize()
        return statistics.median(float(start.elapsed_time(end)) for start, end in spans) / 1000


def ceilings(clock: Clock, device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Of a copy of 1 GiB and a product of 8192 x 8192 matrices."""
    source = torch.zeros(1 << 30, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    left, right = torch.randn(2, 8192, 8192, device=device).to(dtype)
    return Ceilings(
        copy=2 * source.nbytes / clock.measure(lambda: target.copy_(source)),
        product=2 * 8192**3 / clock.measure(lambda: left @ right),
    )


def difference(got: Tensor, want: Tensor) -> float:
    """Largest, relative to the value or to the mean size of all, whichever is larger; infinite for what is
    not a number. Of whole numbers: how many differ."""
    if got.dtype in (torch.int32, torch.int64):
        return float((got != want).sum())
    wide = want.float()
    mean = float(wide.square().mean().sqrt())
    gap = (got.float() - wide).abs() / wide.abs().clamp_min(max(mean, 1e-9))
    return float(gap.max().nan_to_num(float("inf")))


def attention_case(
    kernel: str, shape: Shape, spans: Sequence[tuple[int, int]], device: torch.device, dtype: torch.dtype
) -> Case | None:
    """A ragged step of (start, rows); None if its cache is too large."""
    counts = [-(-(start + rows) // BLOCK) for start, rows in spans]
    position_bytes = 2 * shape.kv_heads * shape.dim * dtype.itemsize
    if sum(counts) * BLOCK * position_bytes > MAX_CACHE_BYTES:
        return None
    cache = torch.randn(sum(counts), 2, shape.kv_heads, BLOCK, shape.dim, dtype=dtype, device=device)
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0)).tolist()
    sequences: list[PagedSequence] = []
    for (start, rows), count in zip(spans, counts, strict=True):
        sequences.append(PagedSequence(order[:count], start, rows))
        order = order[count:]
    batch = paged_batch(sequences, BLOCK, device)
    num_rows = sum(rows for _, rows in spans)
    query = torch.randn(num_rows, shape.heads, shape.dim, dtype=dtype, device=device)
    pairs = sum(rows * start + rows * (rows + 1) / 2 for start, rows in spans)
    return Case(
        kernel,
        f"{shape.name}, {describe(spans)}",
        lambda: paged_attention(query, cache, batch),
        2 * query.nbytes + sum(start + rows for start, rows in spans) * position_bytes,
        4 * pairs * shape.heads * shape.dim,
        lambda: attention_error(query, cache, sequences, batch),
        TOLERANCE[dtype],
    )


def describe(spans: Sequence[tuple[int, int]]) -> str:
    """Of a ragged step, in words."""
    kinds = {(start, rows): spans.count((start, rows)) for start, rows in spans}
    return " + ".join(f"{n} x {rows} rows behind {start}" for (start, rows), n in kinds.items())


def attention_error(
    query: Tensor, cache: Tensor, sequences: Sequence[PagedSequence], batch: PagedBatch
) -> float:
    """Of the last rows of some sequences: the reference computes all scores at once."""
    got = paged_attention(query, cache, batch)
    chosen = sorted({0, len(sequences) // 2, len(sequences) - 1})
    worst, starts = 0.0, batch.query_starts.tolist()
    for index in chosen:
        table, start, rows = sequences[index]
        kept = min(rows, 128)
        part = paged_batch([PagedSequence(table, start + rows - kept, kept)], BLOCK, query.device)
        last = slice(starts[index + 1] - kept, starts[index + 1])
        want = paged_attention_reference(query[last].float(), cache, part)
        worst = max(worst, difference(got[last], want))
    return worst


def attention_cases(device: torch.device, dtype: torch.dtype) -> Iterator[Case]:
    """Decode, prefill, chunks behind a context, verified drafts, all of it mixed."""
    for shape in (SHAPES[0], SHAPES[2]):
        steps = [("decode", [(context - 1, 1)] * rows) for context in CONTEXTS for rows in DECODES]
        steps += [("prefill", [(0, rows)]) for rows in PREFILLS]
        steps += [("chunk", [(32_256, 512)]), ("draft", [(2000, 8)] * 32)]
        steps += [("mixed", [(2047, 1)] * 63 + [(1024, 1024)])]
        for kind, spans in steps:
            case = attention_case(f"attention, {kind}", shape, spans, device, dtype)
            if case is not None:
                yield case


def elementwise_cases(device: torch.device, dtype: torch.dtype) -> Iterator[Case]:
    """What lies between the products, at decode and prefill sizes."""
    for shape in SHAPES:
        for rows in (*DECODES, *PREFILLS):
            yield from _elementwise(shape, rows, device, dtype)


def _elementwise(shape: Shape, rows: int, device: torch.device, dtype: torch.dtype) -> Iterator[Case]:
    heads = shape.heads + 2 * shape.kv_heads
    x = torch.randn(rows, shape.hidden, dtype=dtype, device=device)
    qkv = torch.randn(rows, heads, shape.dim, dtype=dtype, device=device)
    query, key, value = qkv.tensor_split((shape.heads, shape.heads + shape.kv_heads), 1)
    wide = torch.randn(rows, 2 * shape.middle, dtype=dtype, device=device)
    weight, small = (torch.rand(n, dtype=dtype, device=device) for n in (shape.hidden, shape.dim))
    frequencies = 1e6 ** (-torch.arange(shape.dim // 2, device=device) / (shape.dim // 2))
    table = rotary_table(torch.arange(rows, device=device), frequencies)
    slots = torch.randperm(2 * rows, device=device)[:rows]
    caches = torch.zeros(
        2, -(-2 * rows // BLOCK), 2, shape.kv_heads, BLOCK, shape.dim, dtype=dtype, device=device
    )

    def written() -> float:
        write_kv(caches[0], slots, key, value)
        write_kv_reference(caches[1], slots, key, value)
        return difference(caches[0], caches[1])

    def case(kernel: str, work: Callable[[], Tensor], reference: Callable[[], Tensor], size: float) -> Case:
        def error() -> float:
            return difference(work(), reference())

        return Case(kernel, f"{shape.name}, {rows} rows", work, size, 0, error, TOLERANCE[dtype])

    yield case(
        "rms_norm",
        lambda: rms_norm(x, weight, 1e-6),
        lambda: rms_norm_reference(x, weight, 1e-6),
        2 * x.nbytes,
    )
    yield case(
        "rms_norm of heads",
        lambda: rms_norm(query, small, 1e-6),
        lambda: rms_norm_reference(query, small, 1e-6),
        2 * query.nbytes,
    )
    yield case(
        "rotary",
        lambda: apply_rotary(query, table),
        lambda: apply_rotary_reference(query, table),
        2 * query.nbytes,
    )
    yield case("silu_mul", lambda: silu_mul(wide), lambda: silu_mul_reference(wide), 1.5 * wide.nbytes)

    norms = HeadNorms(small, small, 1e-6)

    def entered() -> float:
        got = attention_inputs(qkv, norms, table, caches[0], slots)
        turned = [
            apply_rotary_reference(rms_norm_reference(part, small, 1e-6), table) for part in (query, key)
        ]
        write_kv_reference(caches[1], slots, turned[1], value)
        return max(difference(got, turned[0]), difference(caches[0], caches[1]))

    yield Case(
        "attention_inputs",
        f"{shape.name}, {rows} rows",
        lambda: attention_inputs(qkv, norms, table, caches[0], slots),
        2 * qkv.nbytes,
        0,
        entered,
        TOLERANCE[dtype],
    )
    yield Case(
        "write_kv",
        f"{shape.name}, {rows} rows",
        lambda: write_kv(caches[0], slots, key, value),
        2 * (key.nbytes + value.nbytes),
        0,
        written,
        0.0,
    )


def sampling_cases(device: torch.device) -> Iterator[Case]:
    """Over a vocabulary of Qwen3. A draw may round to a neighbour where its number lies at a boundary."""
    for rows in DECODES:
        logits = torch.randn(rows, VOCAB, device=device) * 3
        uniforms = torch.rand(rows, generator=torch.Generator().manual_seed(rows)).tolist()

        def case(
            kernel: str, work: Callable[[], Tensor], reference: Callable[[], Tensor], slack: float
        ) -> Case:
            def error() -> float:
                return difference(work(), reference())

            return Case(kernel, f"{rows} rows", work, logits.nbytes, 0, error, slack)  # noqa: B023 (used at once)

        yield case("argmax", lambda: argmax(logits), lambda: argmax_reference(logits), 0)  # noqa: B023
        for name, top_k, top_p in (
            ("plain", 0, 1.0),
            ("top_k 20, top_p 0.95", 20, 0.95),
            ("top_p 0.9", 0, 0.9),
        ):
            filters = Filters([0.7] * rows, [top_k] * rows, [top_p] * rows, [0.0] * rows)
            yield case(
                f"draw, {name}",
                lambda: draw(logits, filters, uniforms),  # noqa: B023
                lambda: draw_reference(logits, filters, uniforms),  # noqa: B023
                1 + rows // 64,
            )


def report(cases: Iterator[Case], clock: Clock, top: Ceilings) -> int:
    """Print a line for each case; answers how many differ from their reference."""
    failures = 0
    for case in cases:
        error = case.error()
        span = clock.measure(case.work)
        floor = max(case.num_bytes / top.copy, case.operations / top.product)
        by_product = case.operations / top.product > case.num_bytes / top.copy
        rate = (
            f"{case.operations / span / 1e12:.0f} TFLOP/s"
            if by_product
            else f"{case.num_bytes / span / 1e9:.0f} GB/s"
        )
        verdict = "" if error <= case.tolerance else " **differs**"
        failures += bool(verdict)
        print(
            f"| {case.kernel} | {case.shape} | {span * 1e6:.1f} | {rate} | {floor / span:.2f} "
            f"| {error:.2g}{verdict} |",
            flush=True,
        )
    return failures


def main() -> int:
    """Number to exit with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--dtype", nargs="+", choices=("bfloat16", "float16"), default=["bfloat16", "float16"]
    )
    parser.add_argument("--only", choices=("attention", "elementwise", "sampling"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-decode", action="store_true", help="leave out whole decode steps")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no CUDA device here: nothing to check")
        return 2
    device = torch.device("cuda", torch.cuda.current_device())
    if not has_triton(torch.empty(1, device=device)):
        print("triton is not installed: nothing to check")
        return 2
    clock, failures = Clock(device, options.rounds), 0
    for name in options.dtype:
        dtype: torch.dtype = getattr(torch, name)
        top = ceilings(clock, device, dtype)
        print(f"\n{torch.cuda.get_device_name(device)}, torch {torch.__version__}, {name}: a copy moves")
        print(f"{top.copy / 1e9:.0f} GB/s, a product does {top.product / 1e12:.0f} TFLOP/s.\n")
        print("| kernel | shape | µs | rate | share of ceiling | difference |\n|---|---|---|---|---|---|")
        if options.only in (None, "attention"):
            failures += report(attention_cases(device, dtype), clock, top)
        if options.only in (None, "elementwise"):
            failures += report(elementwise_cases(device, dtype), clock, top)
        if options.only in (None, "sampling") and name == options.dtype[0]:
            failures += report(sampling_cases(device), clock, top)
    if not options.no_decode and options.only is None:
        from gpu_decode import decode_steps

        decode_steps(device, options.rounds)
    print(f"\n{failures} of the kernels' results differ from their references" if failures else "\nall agree")
    return 1 if failures else 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
