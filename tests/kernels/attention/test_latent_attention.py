"""Attention over latents equals attention over what they expand to, whichever way it is computed."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
import torch
from sensorium.kernels.attention import latent_attention as module
from sensorium.kernels.attention.kv_cache import write_latents
from sensorium.kernels.attention.latent_attention import LatentSizes, is_absorbed, latent_attention
from sensorium.kernels.attention.paged_attention import PagedBatch, PagedSequence, paged_batch
from torch import Tensor

SMALL, WIDE = LatentSizes(32, 8, 16, 12), LatentSizes(128, 32, 24, 64)
SPANS = ([(0, 1)], [(0, 37)], [(90, 1), (7, 1), (0, 1)], [(130, 70), (40, 1), (0, 20), (25, 3)])
DTYPES = {torch.float32: 1e-4, torch.bfloat16: 4e-2}


class Case(NamedTuple):
    """Latents that lie scattered among blocks of no numbers, and rows that look into them."""

    query: Tensor
    cache: Tensor
    batch: PagedBatch
    up: Tensor
    latents: tuple[Tensor, ...]
    """Of each sequence."""


def make_case(
    spans: list[tuple[int, int]], sizes: LatentSizes, dtype: torch.dtype, block_size: int = 16
) -> Case:
    rng, generator = random.Random(len(spans)), torch.Generator().manual_seed(len(spans))
    heads, dim = 6, sizes.rank + sizes.shared
    counts = [-(-(start + rows) // block_size) for start, rows in spans]
    blocks = list(range(sum(counts) + 1))
    rng.shuffle(blocks)
    cache = torch.full((len(blocks), 1, 1, block_size, dim), float("nan"), dtype=dtype)
    sequences, latents = [], []
    for (start, rows), count in zip(spans, counts, strict=True):
        table = [blocks.pop() for _ in range(count)]
        own = torch.randn(start + rows, dim, generator=generator).to(dtype)
        slots = [table[at // block_size] * block_size + at % block_size for at in range(start + rows)]
        write_latents(cache, torch.tensor(slots), own)
        sequences.append(PagedSequence(table, start, rows))
        latents.append(own)
    num_rows = sum(rows for _, rows in spans)
    query = torch.randn(num_rows, heads, sizes.key + sizes.shared, generator=generator).to(dtype)
    up = torch.randn(heads, sizes.key + sizes.value, sizes.rank, generator=generator) / sizes.rank**0.5
    return Case(
        query, cache, paged_batch(sequences, block_size, torch.device("cpu")), up.to(dtype), tuple(latents)
    )


def expected(
    case: Case, sizes: LatentSizes, scale: float, window: int | None, sinks: Tensor | None
) -> Tensor:
    """Each row alone, in float64."""
    out = []
    for query, own in zip(
        torch.split(case.query.double(), [*case.batch.num_queries]), case.latents, strict=True
    ):
        latent, shared = torch.split(own.double(), [sizes.rank, sizes.shared], -1)
        expanded = torch.einsum("lr,hnr->hln", latent, case.up.double())
        key, value = torch.split(expanded, [sizes.key, sizes.value], -1)
        for row, position in zip(query, range(len(own) - len(query), len(own)), strict=True):
            first = 0 if window is None else max(position - window + 1, 0)
            seen = slice(first, position + 1)
            scores = torch.einsum("hk,hlk->hl", row[:, : sizes.key], key[:, seen])
            scores = (scores + row[:, sizes.key :] @ shared[seen].t()) * scale
            if sinks is not None:
                scores = torch.cat((scores, sinks.double()[:, None]), -1)
            weights = scores.softmax(-1)[:, : position + 1 - first]
            out.append(torch.einsum("hl,hlv->hv", weights, value[:, seen]))
    return torch.stack(out)


@pytest.mark.parametrize(("sizes", "dtype"), [(SMALL, torch.float32), (WIDE, torch.bfloat16)])
@pytest.mark.parametrize("spans", SPANS, ids=str)
@pytest.mark.parametrize("ways", ["counted", "absorbed", "expanded"])
@pytest.mark.parametrize("window", [None, 19])
def test_it_equals_attention_over_expanded_keys_and_values(
    monkeypatch: pytest.MonkeyPatch,
    spans: list[tuple[int, int]],
    sizes: LatentSizes,
    dtype: torch.dtype,
    ways: str,
    window: int | None,
) -> None:
    if ways != "counted":
        monkeypatch.setattr(module, "is_absorbed", lambda *_: ways == "absorbed")
    case = make_case(spans, sizes, dtype)
    sinks = torch.linspace(-1, 1, 6) if window else None
    args = (case.query, case.cache, case.batch, case.up, sizes)
    got = latent_attention(*args, scale=0.2, window=window, sinks=sinks)
    assert got.dtype is dtype
    want = expected(case, sizes, 0.2, window, sinks)
    torch.testing.assert_close(got.double(), want, rtol=DTYPES[dtype], atol=DTYPES[dtype])


def test_heads_are_expanded_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case([(0, 150)], SMALL, torch.float32)
    whole = latent_attention(case.query, case.cache, case.batch, case.up, SMALL, scale=0.3)
    monkeypatch.setattr(module, "_EXPANDED_BYTES", 2 * 192 * 2 * 24 * 4)
    parts = latent_attention(case.query, case.cache, case.batch, case.up, SMALL, scale=0.3)
    torch.testing.assert_close(parts, whole)


def test_heads_are_attended_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    case, sinks = make_case([(33, 2), (70, 1)], SMALL, torch.float32), torch.linspace(-1, 1, 6)
    monkeypatch.setattr(module, "is_absorbed", lambda *_: True)
    args = (case.query, case.cache, case.batch, case.up, SMALL)
    whole = latent_attention(*args, scale=0.3, sinks=sinks)
    monkeypatch.setattr(module, "heads_at_once", lambda *_: 4)
    torch.testing.assert_close(latent_attention(*args, scale=0.3, sinks=sinks), whole)


@pytest.mark.parametrize(("rows", "length", "absorbed"), [(1, 2, True), (1, 8000, True), (200, 200, False)])
def test_operations_are_counted(rows: int, length: int, absorbed: bool) -> None:
    """Of DeepSeek-V3's sizes."""
    assert is_absorbed(LatentSizes(512, 64, 128, 128), rows, length) is absorbed


def test_a_chunk_far_into_a_prompt_is_absorbed_while_it_is_short() -> None:
    sizes = LatentSizes(512, 64, 128, 128)
    assert [rows for rows in (64, 128, 256, 512) if is_absorbed(sizes, rows, 100_000)] == [64, 128]


def test_a_slot_outside_the_cache_is_refused() -> None:
    cache = torch.zeros(2, 1, 1, 16, 40)
    for slot in (-1, 32):
        with pytest.raises(IndexError, match="lies outside a cache of 2 blocks"):
            write_latents(cache, torch.tensor([slot]), torch.zeros(1, 40))
