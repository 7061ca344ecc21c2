"""Ragged rows over a scattered paged cache, for whoever computes attention of them."""

from __future__ import annotations

import random
from typing import NamedTuple

import torch
from sensorium.kernels.paged_attention import PagedBatch, PagedSequence, paged_batch


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
