"""Ragged rows over a scattered paged cache, for whoever computes attention of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from sensorium.engine.planning.kv.groups import HOLE
from sensorium.kernels.attention.kv_cache import write_kv
from sensorium.kernels.attention.kv_quantization import CODED, decode, stored_size
from sensorium.kernels.attention.paged_attention import (
    PagedBatch,
    PagedSequence,
    paged_attention,
    paged_attention_reference,
    paged_batch,
)

Kept = Literal["numbers", "codes"]
TOLERANCE = {
    ("numbers", torch.float32): 2e-5,
    ("numbers", torch.bfloat16): 3e-2,
    ("codes", torch.float32): 1e-4,
    ("codes", torch.bfloat16): 3e-2,
}
"""Queries and softmax have 16 bits over codes; bfloat16 rounds its results, and in prompts its weights."""
WORST = 0.03
"""Norm of the difference to attention over numbers that were never coded, as a part of its norm."""


class Case(NamedTuple):
    """A cache, whose positions nobody owns are not numbers, and rows that look into it."""

    query: torch.Tensor
    cache: torch.Tensor
    batch: PagedBatch


def make_case(
    spans: list[tuple[int, int]], *, dtype: torch.dtype, kv_heads: int, group: int, dim: int, block_size: int
) -> Case:
    """`spans` are (start, rows) of each sequence; their blocks are scattered over the cache."""
    rng = random.Random(len(spans) * 1000 + spans[0][0])
    generator = torch.Generator().manual_seed(rng.randrange(1000))
    counts = [-(-(start + rows) // block_size) for start, rows in spans]
    blocks = list(range(sum(counts) + 2))
    rng.shuffle(blocks)
    cache = torch.full((len(blocks), 2, kv_heads, block_size, dim), float("nan"), dtype=dtype)
    sequences: list[PagedSequence] = []
    for (start, rows), count in zip(spans, counts, strict=True):
        table = [blocks.pop() for _ in range(count)]
        for position in range(start + rows):
            values = torch.randn(2, kv_heads, dim, generator=generator)
            cache[table[position // block_size], :, :, position % block_size] = values.to(dtype)
        sequences.append(PagedSequence(table, start, rows))
    num_rows = sum(rows for _, rows in spans)
    query = torch.randn(num_rows, kv_heads * group, dim, generator=generator).to(dtype)
    return Case(query, cache, paged_batch(sequences, block_size, torch.device("cpu")))


def coded_cache(blocks: int, heads: int, block_size: int, dim: int) -> torch.Tensor:
    """Of bytes that nobody wrote: as scales they are no numbers."""
    return torch.full((blocks, 2, heads, block_size, stored_size(dim, CODED)), 255, dtype=CODED)


def coded(case: Case) -> Case:
    """The same keys and values, coded; where there are none nothing is written."""
    blocks, _, heads, size, dim = case.cache.shape
    cache = coded_cache(blocks, heads, size, dim)
    flat = case.cache.permute(0, 3, 1, 2, 4).reshape(-1, 2, heads, dim)
    slots = (~flat.isnan().any(-1).any(-1).any(-1)).nonzero()[:, 0]
    write_kv(cache, slots, flat[slots, 0].contiguous(), flat[slots, 1].contiguous())
    return case._replace(cache=cache)


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    """Norm of the difference, as a part of what is wanted."""
    return float((got.double() - want.double()).norm() / want.double().norm())


def with_holes(case: Case, window: int | None, chunk: int | None = None) -> PagedBatch:
    """The step as it is where windows let go of blocks: in their places the tables have one that nobody
    wrote, or none at all if there is no such block."""
    tables, size = case.batch.block_tables.clone(), case.batch.block_size
    unwritten = case.cache.isnan().flatten(1).all(1).nonzero()[:, 0].tolist()
    ends = zip(case.batch.context_lengths.tolist(), case.batch.num_queries, strict=True)
    for table, (length, rows) in zip(tables, ends, strict=True):
        start = length - rows
        first = start - start % chunk if chunk else 0 if window is None else max(start - window + 1, 0)
        table[: first // size] = unwritten[0] if unwritten else HOLE
    return replace(case.batch, block_tables=tables)


def check_attention(
    plain: Case,
    kept: Kept = "numbers",
    *,
    window: int | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> None:
    """Attention over numbers, or over codes of them, whichever way it is computed: against float64 over what
    is kept, and of codes over the numbers that were coded."""
    case = coded(plain) if kept == "codes" else plain
    seen: dict[str, Any] = {"window": window, "chunk": chunk, "softcap": softcap, "sinks": sinks}
    got = paged_attention(case.query, case.cache, with_holes(plain, window, chunk), **seen)
    assert got.dtype is case.query.dtype
    numbers = plain.cache.double().nan_to_num()
    query, clean = (
        case.query.double(),
        decode(case.cache).double().nan_to_num() if kept == "codes" else numbers,
    )
    want = paged_attention_reference(query, clean, case.batch, **seen)
    tolerance = TOLERANCE[kept, got.dtype]
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)
    if kept == "codes":
        want = paged_attention_reference(query, numbers, case.batch, **seen)
        assert distance(got, want) < WORST
