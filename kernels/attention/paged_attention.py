"""Causal self-attention of ragged queries over a paged cache, with grouped key-value heads.

A step's tokens are rows of one tensor, sequence after sequence; each row sees its sequence's cache
positions up to its own. `paged_batch` computes tables and slots once per step for all layers that share a
table, `with_tables` for those of another.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..gpu.jit import has_triton
from ..native import CODES, native_for
from ..transfer import to_device
from .kv_cache import gather_kv, takes_codes
from .kv_quantization import CODED, head_size


class PagedSequence(NamedTuple):
    """Rows at positions `start` to `start + num_rows` of a sequence whose KV lies in `block_table`. Entries
    that lie in front of every row's window may be anything: they are not read."""

    block_table: Sequence[int]
    start: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """What every layer of one step needs, on the device and (the numbers) on the host.

    `block_tables` int32 [sequences, longest table], padded with block 0; `query_starts` int32
    [sequences + 1]; `context_lengths` int32 [sequences], the new rows included; `write_slots` int64 [rows].
    """

    block_size: int
    block_tables: Tensor
    query_starts: Tensor
    context_lengths: Tensor
    write_slots: Tensor
    num_queries: tuple[int, ...]


def paged_batch(sequences: Sequence[PagedSequence], block_size: int, device: torch.device) -> PagedBatch:
    """Lay out a step. Rows are numbered through the sequences in order. Takes time by the block."""
    starts, ends = array("i", [0]), array("i")
    for _, start, num_rows in sequences:
        starts.append(starts[-1] + num_rows)
        ends.append(start + num_rows)
    tables, slots = _laid_out(sequences, block_size, device)
    return PagedBatch(
        block_size=block_size,
        block_tables=tables,
        query_starts=_tensor(starts, torch.int32, device),
        context_lengths=_tensor(ends, torch.int32, device),
        write_slots=slots,
        num_queries=tuple(sequence.num_rows for sequence in sequences),
    )


def with_tables(batch: PagedBatch, sequences: Sequence[PagedSequence]) -> PagedBatch:
    """The same step for layers whose keys and values lie in other tables."""
    tables, slots = _laid_out(sequences, batch.block_size, batch.write_slots.device)
    return replace(batch, block_tables=tables, write_slots=slots)


def _laid_out(
    sequences: Sequence[PagedSequence], block_size: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The tables of a step and its rows' slots."""
    widest = max((-(-(start + num_rows) // block_size) for _, start, num_rows in sequences), default=0)
    tables, slots = array("i"), array("q")
    padding = array("i", bytes(4 * widest))
    for table, start, num_rows in sequences:
        end = start + num_rows
        width = -(-end // block_size)
        tables.extend(table[:width])
        tables.extend(padding[width:])
        while start < end:
            block, offset = divmod(start, block_size)
            first = table[block] * block_size + offset
            count = min(block_size - offset, end - start)
            slots.extend(range(first, first + count))
            start += count
    shape = (len(sequences), widest)
    return _tensor(tables, torch.int32, device).view(shape), _tensor(slots, torch.int64, device)


def _tensor(values: array[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    if not values:  # torch wants at least one byte
        return torch.empty(0, dtype=dtype, device=device)
    return to_device(torch.frombuffer(values, dtype=dtype), device)


def paged_attention(
    query: Tensor,
    cache: Tensor,
    batch: PagedBatch,
    *,
    scale: float | None = None,
    window: int | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """query [rows, heads, dim], cache [blocks, 2, kv_heads, block_size, dim] → [rows, heads, dim].

    A cache [blocks, 1, …] holds latents, which are keys and values (`latent_attention.py`). One of codes
    (`kv_quantization.py`) is read as it is; the 16 bits that queries and softmax are rounded
    to for it are far finer than codes.

    `scale` is 1/√dim unless given. With a `window` a row sees its last `window` positions, itself included,
    with a `chunk` those of its own of the chunks of so many positions (one of them at most is given);
    `softcap` c bends scores to c·tanh(score/c). `sinks` [heads] are scores of nothing: each takes a part of
    its head's weights, and adds no value.
    """
    sinks = None if sinks is None else sinks.to(query.device, torch.float32).contiguous()
    native = native_for(query)
    heads, dim = query.shape[1:]
    kv_heads, block_size = cache.shape[2:4]
    coded = cache.dtype is CODED
    if coded:
        usable = softcap is None and takes_codes(native, cache)
    else:
        usable = softcap is None and cache.dtype is query.dtype and cache.is_contiguous() and dim % 2 == 0
    assert (query.shape[0], block_size, head_size(cache)) == (
        batch.write_slots.shape[0],
        batch.block_size,
        dim,
    )
    assert heads % kv_heads == 0, "query heads share key-value heads evenly"
    if has_triton(query) and cache.dtype is query.dtype:
        from ..gpu.paged_attention import paged_attention as on_gpu

        return on_gpu(
            query, cache, batch, scale=scale, window=window, chunk=chunk, softcap=softcap, sinks=sinks
        )
    if native is None or not usable:
        return paged_attention_reference(
            query, cache, batch, scale=scale, window=window, chunk=chunk, softcap=softcap, sinks=sinks
        )
    if query.stride()[1:] != (dim, 1):
        query = query.contiguous()
    out = torch.empty(query.shape, dtype=query.dtype)
    native.attention(
        CODES[query.dtype],
        coded,
        query.data_ptr(),
        query.stride(0),
        cache.data_ptr(),
        batch.block_tables.data_ptr(),
        batch.block_tables.shape[1],
        batch.query_starts.data_ptr(),
        batch.context_lengths.data_ptr(),
        len(batch.num_queries),
        heads,
        kv_heads,
        dim,
        block_size,
        window or 0,
        chunk or 0,
        1,
        dim**-0.5 if scale is None else scale,
        None if sinks is None else sinks.data_ptr(),
        cache.shape[1],
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def paged_attention_reference(
    query: Tensor,
    cache: Tensor,
    batch: PagedBatch,
    *,
    scale: float | None = None,
    window: int | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """The same, one sequence at a time, in float32."""
    heads, dim = query.shape[1:]
    factor = dim**-0.5 if scale is None else scale
    out: list[Tensor] = []
    first = 0
    for index, (num_rows, length) in enumerate(
        zip(batch.num_queries, batch.context_lengths.tolist(), strict=True)
    ):
        own = torch.arange(length - num_rows, length, device=query.device)[:, None]
        seen_from = _first_seen(own, window, chunk)
        # Blocks in front of what all rows see are another's by now.
        least = int(seen_from[0]) // batch.block_size if num_rows else 0
        skipped = least * batch.block_size
        key, value = gather_kv(cache, batch.block_tables[index, least:], length - skipped)
        key, value = (each.float().repeat_interleave(heads // each.shape[0], 0) for each in (key, value))
        rows = query[first : first + num_rows].float().transpose(0, 1) * factor
        scores = rows @ key.transpose(1, 2)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        positions = torch.arange(skipped, length, device=query.device)[None]
        scores = scores.masked_fill((positions > own) | (positions < seen_from), float("-inf"))
        if sinks is not None:
            scores = torch.cat([scores, sinks.to(scores).view(-1, 1, 1).expand(-1, num_rows, 1)], -1)
        weights = scores.softmax(-1)[..., : length - skipped]
        out.append((weights @ value).transpose(0, 1).to(query.dtype))
        first += num_rows
    return torch.cat(out) if out else query.new_empty((0, heads, dim))


def _first_seen(own: Tensor, window: int | None, chunk: int | None) -> Tensor:
    """The first positions that rows at `own` see."""
    if chunk is not None:
        return own - own % chunk
    return torch.zeros_like(own) if window is None else (own - window + 1).clamp_min(0)
