"""Triton's paged attention on any ragged batch, and its writing of keys and values, against the references.

Run by `test_interpreter.py`. In bfloat16 the interpreter multiplies bit patterns; that type is checked by
`examples/benchmarks/gpu_kernels.py` on a card.
"""

from __future__ import annotations

import random

import pytest
import torch
from sensorium.kernels.attention.kv_cache import write_kv_reference
from sensorium.kernels.attention.paged_attention import (
    PagedBatch,
    PagedSequence,
    paged_attention_reference,
    paged_batch,
)
from sensorium.kernels.gpu.kv_cache import write_kv
from sensorium.kernels.gpu.paged_attention import paged_attention
from support.paged_case import Case, with_holes
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of what a GPU computes silently

CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 2e-6, torch.float16: 4e-3}


def make(
    spans: list[tuple[int, int]], *, kv_heads: int, group: int, dim: int, block_size: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, PagedBatch]:
    """Queries that are part of a projection, a cache with scattered tables whose other blocks are not
    numbers, and the batch."""
    rng = random.Random(repr((spans, dim)))
    generator = torch.Generator().manual_seed(rng.randrange(1000))
    counts = [-(-(start + rows) // block_size) for start, rows in spans]
    blocks = rng.sample(range(sum(counts) + 2), sum(counts))
    cache = torch.full((sum(counts) + 2, 2, kv_heads, block_size, dim), float("nan"), dtype=dtype)
    sequences = []
    for (start, rows), count in zip(spans, counts, strict=True):
        table, blocks = blocks[:count], blocks[count:]
        for position in range(start + rows):
            values = torch.randn(2, kv_heads, dim, generator=generator)
            cache[table[position // block_size], :, :, position % block_size] = values.to(dtype)
        sequences.append(PagedSequence(table, start, rows))
    num_rows = sum(rows for _, rows in spans)
    query = torch.randn(num_rows, kv_heads * group + 3, dim, generator=generator).to(dtype)[:, :-3]
    return query, cache, paged_batch(sequences, block_size, CPU)


def check(query: Tensor, cache: Tensor, batch: PagedBatch, **options: float | Tensor | None) -> None:
    """Against float64, which sees nothing of the positions nobody owns; in front of windows the tables have
    no blocks."""
    seen = options.get("window"), options.get("chunk")
    holed = with_holes(Case(query, cache, batch), *seen)  # type: ignore[arg-type]
    got = paged_attention(query, cache, holed, **options)  # type: ignore[arg-type]
    options.pop("splits", None)
    clean = cache.double().nan_to_num()
    want = paged_attention_reference(query.double(), clean, batch, **options)  # type: ignore[arg-type]
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("seed", range(12))
def test_any_ragged_step(seed: int) -> None:
    """Chunks, drafts and single rows together; odd heads and dims; windows, caps, scales and splits."""
    rng = random.Random(seed)
    spans = [
        (rng.choice([0, 3, 40, 70]), rng.choice([1, 1, 5, rng.randint(1, 40)]))
        for _ in range(rng.randint(1, 4))
    ]
    query, cache, batch = make(
        spans,
        kv_heads=rng.choice([1, 2]),
        group=rng.choice([1, 2, 3, 5, 8]),
        dim=rng.choice([2, 16, 24, 40, 64]),
        block_size=rng.choice([1, 4, 7, 16]),
        dtype=rng.choice([torch.float32, torch.float16]),
    )
    check(
        query,
        cache,
        batch,
        scale=rng.choice([None, 0.3]),
        **rng.choice([{}, {"window": 1}, {"window": 9}, {"window": 50}, {"chunk": 7}, {"chunk": 40}]),
        softcap=rng.choice([None, None, 2.0]),
        splits=rng.choice([None, 1, 2, 3, 4]),
        sinks=rng.choice([None, torch.linspace(-1, 3, query.shape[1])]),
    )


def test_latents_are_keys_and_values() -> None:
    query, cache, batch = make(
        [(30, 3), (70, 1)], kv_heads=1, group=4, dim=40, block_size=16, dtype=torch.float32
    )
    latents = cache[:, :1].contiguous()
    check(query, latents, batch)
    both = paged_attention(query, latents.repeat(1, 2, 1, 1, 1), batch)
    torch.testing.assert_close(paged_attention(query, latents, batch), both)


@pytest.mark.parametrize("splits", [1, 4])
def test_decode_rows_of_very_different_contexts(splits: int) -> None:
    """Shares of the short contexts are empty."""
    spans = [(position, 1) for position in (0, 150, 5)]
    query, cache, batch = make(spans, kv_heads=1, group=4, dim=16, block_size=16, dtype=torch.float32)
    check(query, cache, batch, splits=splits)
    check(query, cache, batch, splits=splits, window=3)


def test_a_sequence_of_many_tiles_between_two_of_one() -> None:
    spans = [(30, 1), (0, 150), (9, 3)]
    query, cache, batch = make(spans, kv_heads=1, group=2, dim=16, block_size=16, dtype=torch.float32)
    check(query, cache, batch)


def test_long_contexts_of_few_sequences_are_split() -> None:
    query, cache, batch = make([(1100, 1)], kv_heads=1, group=1, dim=16, block_size=64, dtype=torch.float32)
    whole = paged_attention(query, cache, batch, splits=1)
    chosen = paged_attention(query, cache, batch)
    torch.testing.assert_close(chosen, whole, rtol=1e-5, atol=1e-6)
    assert not torch.equal(chosen, whole), "sums in another order round differently"


def test_a_replayed_step_reads_contexts_from_the_device() -> None:
    """Nothing the host knows of contexts goes into a launch: a wide table with other lengths is enough."""
    query, cache, batch = make(
        [(5, 1), (70, 1)], kv_heads=1, group=2, dim=16, block_size=16, dtype=torch.float32
    )
    wide = torch.zeros(2, 40, dtype=torch.int32)
    wide[:, : batch.block_tables.shape[1]] = batch.block_tables
    static = PagedBatch(
        block_size=16,
        block_tables=wide,
        query_starts=batch.query_starts,
        context_lengths=batch.context_lengths,
        write_slots=batch.write_slots,
        num_queries=(1, 1),
    )
    got, want = paged_attention(query, cache, static), paged_attention(query, cache, batch)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_step_without_sequences() -> None:
    cache = torch.zeros(1, 2, 1, 16, 8)
    assert paged_attention(torch.zeros(0, 2, 8), cache, paged_batch([], 16, CPU)).shape == (0, 2, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("heads", "dim", "block_size"), [(1, 16, 4), (3, 24, 7), (8, 2, 1)])
def test_write_kv(dtype: torch.dtype, heads: int, dim: int, block_size: int) -> None:
    generator = torch.Generator().manual_seed(dim)
    start = torch.randn(9, 2, heads, block_size, dim, generator=generator).to(dtype)
    slots = torch.randperm(9 * block_size, generator=generator)[:5]
    wide = torch.randn(5, 2 * heads + 1, dim, generator=generator).to(dtype)
    key, value = wide[:, :heads], wide[:, heads : 2 * heads]
    got, want = start.clone(), start.clone()
    write_kv(got, slots, key, value)
    write_kv_reference(want, slots, key, value)
    assert torch.equal(got, want)
    write_kv(got, slots[:0], key[:0], value[:0])
    write_kv(got, torch.tensor([-1, 9 * block_size]), key[:2], value[:2])
    assert torch.equal(got, want), "a slot outside the cache is left out"
    turned = key.transpose(1, 2).contiguous().transpose(1, 2)
    write_kv(got, slots, turned, value)
    assert torch.equal(got, want)
