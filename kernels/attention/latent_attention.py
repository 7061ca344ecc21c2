"""Attention over latents (MLA): one compressed vector of each token in place of keys and values.

A latent is `rank` numbers, which a matrix of each head expands to its key and its value, followed by the
rotated part of the key that all heads share. Two ways give the same. *Absorbed*, the matrices are applied
to queries and to what attention gives: the latents are keys and values of one head. *Expanded*, they are
applied to the latents. Many rows share what is expanded; for few, absorbed needs fewer operations. Each
sequence of a step takes the way that needs fewer. DeepSeek-V2, https://arxiv.org/abs/2405.04434, section 2.1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from .paged_attention import PagedBatch, PagedSequence, paged_attention, paged_batch

_EXPANDED_BYTES: Final = 64 * 1024**2
"""Of keys and values expanded at once, unless those of one head are more."""
_GPU_HEADS: Final = 16
_BLOCK: Final = 64
"""Positions to a block of expanded keys and values."""


class LatentSizes(NamedTuple):
    """Numbers of a latent, of the shared part of keys behind it, and of what a head expands to."""

    rank: int
    shared: int
    key: int
    """Without the shared part."""
    value: int


def latent_attention(
    query: Tensor,
    cache: Tensor,
    batch: PagedBatch,
    up: Tensor,
    sizes: LatentSizes,
    *,
    scale: float,
    window: int | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """query [rows, heads, key + shared], cache [blocks, 1, 1, block_size, rank + shared or more], `up`
    [heads, key + value, rank] → [rows, heads, value]. `window` and `sinks` are as in `paged_attention`.
    """
    options: dict[str, Any] = {"scale": scale, "window": window, "sinks": sinks}
    if max(batch.num_queries, default=0) <= 1:
        return _absorbed(query, cache, batch, up, sizes, options)
    lengths = batch.context_lengths.tolist()
    chosen = [
        is_absorbed(sizes, rows, length) for rows, length in zip(batch.num_queries, lengths, strict=True)
    ]
    if all(chosen):
        return _absorbed(query, cache, batch, up, sizes, options)
    out = query.new_empty(*query.shape[:2], sizes.value)
    rows = torch.split(query, [*batch.num_queries])
    parts = torch.split(out, [*batch.num_queries])
    few = [index for index, absorbed in enumerate(chosen) if absorbed]
    if few:
        some = torch.cat([rows[index] for index in few])
        mixed = _absorbed(some, cache, _part(batch, few), up, sizes, options)
        for index, each in zip(
            few, torch.split(mixed, [batch.num_queries[index] for index in few]), strict=True
        ):
            parts[index].copy_(each)
    for index, absorbed in enumerate(chosen):
        if not absorbed:
            table, length = batch.block_tables[index], lengths[index]
            latents, skipped = _gathered(cache, table, length, batch.num_queries[index], window)
            _expand(rows[index], latents, length - skipped, up, sizes, options, parts[index])
    return out


def is_absorbed(sizes: LatentSizes, rows: int, length: int) -> bool:
    """Whether that way takes fewer multiplications a head, of so many rows at the end of so many tokens."""
    pairs = rows * length
    up = sizes.rank * (sizes.key + sizes.value)
    absorbed = rows * up + pairs * (2 * sizes.rank + sizes.shared)
    expanded = length * up + pairs * (sizes.key + sizes.shared + sizes.value)
    return absorbed <= expanded


def _absorbed(
    query: Tensor, cache: Tensor, batch: PagedBatch, up: Tensor, sizes: LatentSizes, options: dict[str, Any]
) -> Tensor:
    absorbed = absorb(query, up, sizes)
    # What else lies in a vector is multiplied by zeros.
    padded = torch.nn.functional.pad(absorbed, (0, cache.shape[4] - absorbed.shape[2]))
    heads = padded.shape[1]
    most = heads_at_once(cache.device, heads)
    if most >= heads:
        return values_of(paged_attention(padded, cache, batch, **options), up, sizes)
    mixed = [
        paged_attention(padded[:, some].contiguous(), cache, batch, **_of_heads(options, some))
        for some in (slice(first, first + most) for first in range(0, heads, most))
    ]
    return values_of(torch.cat(mixed, 1), up, sizes)


def heads_at_once(device: torch.device, heads: int) -> int:
    """How many heads share one reading of latents: all of them, or as many as a GPU has registers for."""
    return heads if device.type == "cpu" else _GPU_HEADS


def _of_heads(options: dict[str, Any], some: slice) -> dict[str, Any]:
    sinks = options["sinks"]
    return options | {"sinks": None if sinks is None else sinks[some]}


def absorb(query: Tensor, up: Tensor, sizes: LatentSizes) -> Tensor:
    """Queries [rows, heads, key + shared] as those of latents, [rows, heads, rank + shared]."""
    own, shared = torch.split(query, [sizes.key, sizes.shared], -1)
    latent = torch.bmm(own.transpose(0, 1), up[:, : sizes.key]).transpose(0, 1)
    return torch.cat((latent, shared), -1)


def values_of(mixed: Tensor, up: Tensor, sizes: LatentSizes) -> Tensor:
    """Weighted sums of latents [rows, heads, rank or more] → [rows, heads, value]."""
    values = torch.bmm(mixed[..., : sizes.rank].transpose(0, 1), up[:, sizes.key :].transpose(1, 2))
    return values.transpose(0, 1)


def _gathered(cache: Tensor, table: Tensor, length: int, rows: int, window: int | None) -> tuple[Tensor, int]:
    """Latents of a sequence from the first block that some row sees, [positions, size], and how many
    positions lie in front of it."""
    size = cache.shape[3]
    first = 0 if window is None else max(length - rows - window + 1, 0) // size
    blocks = cache.index_select(0, table[first : -(-length // size)])
    return blocks.flatten(0, 3)[: length - first * size], first * size


def _expand(
    query: Tensor,
    latents: Tensor,
    length: int,
    up: Tensor,
    sizes: LatentSizes,
    options: dict[str, Any],
    out: Tensor,
) -> None:
    """The rows of one sequence, which are its last; some heads at a time."""
    rows, heads, width = query.shape
    dim = max(width, sizes.value)
    dim += dim % 2
    num_blocks = -(-length // _BLOCK)
    head_bytes = num_blocks * _BLOCK * 2 * dim * query.element_size()
    most = min(max(_EXPANDED_BYTES // head_bytes, 1), heads)
    batch = paged_batch([PagedSequence(range(num_blocks), length - rows, rows)], _BLOCK, query.device)
    padded = torch.nn.functional.pad(latents, (0, 0, 0, num_blocks * _BLOCK - length))
    padded = padded.view(num_blocks, _BLOCK, -1)
    latent, shared = torch.split(padded[..., : sizes.rank + sizes.shared], [sizes.rank, sizes.shared], -1)
    for first in range(0, heads, most):
        some = slice(first, min(first + most, heads))
        expanded = torch.matmul(latent, up[some].flatten(0, 1).t())
        by_head = expanded.view(num_blocks, _BLOCK, -1, sizes.key + sizes.value).transpose(1, 2)
        key, value = by_head[..., : sizes.key], by_head[..., sizes.key :]
        cache = query.new_zeros(num_blocks, 2, key.shape[1], _BLOCK, dim)
        cache[:, 0, ..., : sizes.key] = key
        cache[:, 0, ..., sizes.key : width] = shared[:, None]
        cache[:, 1, ..., : sizes.value] = value
        own = torch.nn.functional.pad(query[:, some], (0, dim - width)).contiguous()
        mixed = paged_attention(own, cache, batch, **_of_heads(options, some))
        out[:, some].copy_(mixed[..., : sizes.value])


def _part(batch: PagedBatch, indices: list[int]) -> PagedBatch:
    """The step of some sequences, to be read only."""
    chosen = torch.tensor(indices, device=batch.block_tables.device)
    num_queries = tuple(batch.num_queries[index] for index in indices)
    starts = torch.tensor((0, *num_queries), dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return replace(
        batch,
        block_tables=batch.block_tables[chosen],
        query_starts=starts.to(batch.query_starts.device),
        context_lengths=batch.context_lengths[chosen],
        write_slots=batch.write_slots[: sum(num_queries)],
        num_queries=num_queries,
    )
