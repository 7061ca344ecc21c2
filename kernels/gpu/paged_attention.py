"""`paged_attention` on GPUs: one launch for a whole ragged step, whatever mix of chunks, drafts and decodes.

A program takes a tile of one sequence's rows, all query heads of one key-value head, and a share of the
context (flash attention, Dao et al., https://arxiv.org/abs/2307.08691). Where tiles are too few to fill the
device each context is split among several programs, and `_join` adds their parts (flash decoding). Grids and
splits follow from shapes and the number of rows per sequence alone, contexts are read on the device: so a
recorded decode step may be replayed on longer ones.
"""

from __future__ import annotations

import functools

import torch
import triton.language as tl
from torch import Tensor

from ..attention.paged_attention import PagedBatch
from .jit import jit, jit_varying, power_of_two

_WAVES = 2  # programs wanted per multiprocessor before contexts are left whole
_MIN_SPLIT = 256  # positions below which splitting a context costs more than it gives
_MAX_SPLITS = 32
_WIDE_TILE = 128 * 128 * 2  # bytes of queries from which four warps would run out of registers


@jit
def _sequence_of(starts: tl.tensor, num_sequences: int, tile: int, tile_rows: tl.constexpr) -> tl.tensor:
    """The sequence of a tile, if each begins at the tile after the last that those before it may need."""
    low = tl.zeros((), tl.int32)
    high = low + num_sequences
    while high - low > 1:
        middle = (low + high) // 2
        first_tile = tl.load(starts + middle) // tile_rows + middle
        is_later = first_tile <= tile
        low = tl.where(is_later, middle, low)
        high = tl.where(is_later, high, middle)
    return low


@jit_varying("table_stride", "num_sequences", "splits")
def _attend(
    query: tl.tensor,
    query_stride: int,
    cache: tl.tensor,
    tables: tl.tensor,
    table_stride: int,
    starts: tl.tensor,
    lengths: tl.tensor,
    sinks: tl.tensor,
    num_sequences: int,
    splits: int,
    scale: float,
    softcap: float,
    out: tl.tensor,
    highest: tl.tensor,
    totals: tl.tensor,
    planes: tl.constexpr,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    dim: tl.constexpr,
    block_dim: tl.constexpr,
    block_size: tl.constexpr,
    block_queries: tl.constexpr,
    block_keys: tl.constexpr,
    tile_rows: tl.constexpr,
    is_split: tl.constexpr,
    window: tl.constexpr,
    chunk: tl.constexpr,
    is_capped: tl.constexpr,
    has_sinks: tl.constexpr,
    single_rows: tl.constexpr,
    precision: tl.constexpr,
) -> None:
    tile, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if single_rows:
        sequence, first_row = tile, tile * 0
    else:
        sequence = _sequence_of(starts, num_sequences, tile, tile_rows)
        first_row = (tile - tl.load(starts + sequence) // tile_rows - sequence) * tile_rows
    start = tl.load(starts + sequence)
    num_rows = tl.load(starts + sequence + 1) - start
    if first_row >= num_rows:
        return
    length = tl.load(lengths + sequence)

    place = tl.arange(0, block_queries)
    row, head = first_row + place // group, kv_head * group + place % group
    is_query = (place < tile_rows * group) & (row < num_rows)
    column = tl.arange(0, block_dim)
    is_column = column < dim
    heads: tl.constexpr = kv_heads * group
    wide_row = (start + row).to(tl.int64)
    q = tl.load(
        query + wide_row[:, None] * query_stride + head[:, None] * dim + column[None, :],
        mask=is_query[:, None] & is_column[None, :],
        other=0.0,
    )
    position = length - num_rows + row

    end = length - num_rows + tl.minimum(first_row + tile_rows, num_rows)
    begin = end * 0
    least = begin
    if window > 0:
        # The table has no blocks for what lies in front of it.
        least = tl.maximum(length - num_rows + first_row - window + 1, 0)
        begin = least // block_keys * block_keys
    if chunk > 0:
        least = (length - num_rows + first_row) // chunk * chunk
        begin = least // block_keys * block_keys
    share = tl.cdiv(tl.cdiv(end - begin, splits), block_keys) * block_keys
    begin += split * share
    end = tl.minimum(end, begin + share)

    high = tl.full([block_queries], float("-inf"), tl.float32)
    total = tl.zeros([block_queries], tl.float32)
    if has_sinks:
        is_first = (split == 0) & is_query  # of a split context one share has it
        sink = tl.load(sinks + head, mask=is_first, other=float("-inf"))
        high = sink * 1.4426950408889634
        total = tl.where(is_first, 1.0, total)
    mixed = tl.zeros([block_queries, block_dim], tl.float32)
    head_start = cache + kv_head * (block_size * dim)
    for first_key in range(begin, end, block_keys):
        key_at = first_key + tl.arange(0, block_keys)
        is_key = (key_at >= least) & (key_at < end)
        block = tl.load(tables + sequence.to(tl.int64) * table_stride + key_at // block_size, is_key, 0)
        place_of = block.to(tl.int64) * (planes * kv_heads * block_size * dim) + (key_at % block_size) * dim
        pointers = head_start + place_of[:, None] + column[None, :]
        known = is_key[:, None] & is_column[None, :]
        k = tl.load(pointers, mask=known, other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision=precision) * scale
        if is_capped:
            score = softcap * (1.0 - 2.0 / (tl.exp(2.0 * score / softcap) + 1.0))
        score = score * 1.4426950408889634
        visible = is_key[None, :] & (key_at[None, :] <= position[:, None])
        if window > 0:
            visible = visible & (key_at[None, :] > position[:, None] - window)
        if chunk > 0:
            visible = visible & (key_at[None, :] // chunk == position[:, None] // chunk)
        score = tl.where(visible, score, float("-inf"))
        new_high = tl.maximum(high, tl.max(score, 1))
        base = tl.where(new_high == float("-inf"), 0.0, new_high)  # a row may see nothing of this share
        weight = tl.exp2(score - base[:, None])
        fade = tl.exp2(high - base)
        v = k
        if planes > 1:
            v = tl.load(pointers + kv_heads * block_size * dim, mask=known, other=0.0)
        total = total * fade + tl.sum(weight, 1)
        mixed = mixed * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=precision)
        high = new_high

    target = wide_row * heads + head
    inside = is_query[:, None] & is_column[None, :]
    if not is_split:
        result = mixed / total[:, None]
        tl.store(out + target[:, None] * dim + column[None, :], result.to(out.dtype.element_ty), mask=inside)
    else:
        target = target * splits + split
        tl.store(highest + target, high, mask=is_query)
        tl.store(totals + target, total, mask=is_query)
        tl.store(out + target[:, None] * dim + column[None, :], mixed, mask=inside)


@jit_varying("splits")
def _join(
    parts: tl.tensor,
    highest: tl.tensor,
    totals: tl.tensor,
    out: tl.tensor,
    splits: int,
    dim: tl.constexpr,
    block_dim: tl.constexpr,
    block_splits: tl.constexpr,
) -> None:
    """Of one row and head: the weighted mean of what each share of the context gave."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, block_splits)
    column = tl.arange(0, block_dim)
    is_split = split < splits
    high = tl.load(highest + row * splits + split, mask=is_split, other=float("-inf"))
    weight = tl.exp2(high - tl.max(high, 0))
    total = tl.sum(tl.load(totals + row * splits + split, mask=is_split, other=0.0) * weight, 0)
    mixed = tl.load(
        parts + (row * splits + split[:, None]) * dim + column[None, :],
        mask=is_split[:, None] & (column < dim)[None, :],
        other=0.0,
    )
    result = tl.sum(mixed * weight[:, None], 0) / total
    tl.store(out + row * dim + column, result.to(out.dtype.element_ty), mask=column < dim)


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
    splits: int | None = None,
) -> Tensor:
    """See `kernels/attention/paged_attention.py`; query and cache are of one dtype. `splits` (at most
    32) are chosen here unless given."""
    rows, heads, dim = query.shape
    kv_heads, block_size = cache.shape[2:4]
    group, sequences = heads // kv_heads, len(batch.num_queries)
    assert cache.is_contiguous(), "the cache is addressed as a whole"
    if query.stride()[1:] != (dim, 1):
        query = query.contiguous()
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    if not out.numel():
        return out
    block_queries, block_keys = _tile(group, max(batch.num_queries), dim, query.itemsize)
    block_dim = max(16, power_of_two(dim))
    tile_rows = block_queries // group
    single_rows = rows == sequences and min(batch.num_queries) == 1
    num_tiles = sequences if single_rows else rows // tile_rows + sequences
    context = batch.block_tables.shape[1] * block_size
    splits = splits or _splits(num_tiles * kv_heads, context, query.device)
    # Of one share there is nothing to join; these are not read then.
    parts, highest, totals = out, out, out
    if splits > 1:
        shape = (rows, heads, splits)
        parts = torch.empty((*shape, dim), dtype=torch.float32, device=query.device)
        highest = torch.empty(shape, dtype=torch.float32, device=query.device)
        totals = torch.empty(shape, dtype=torch.float32, device=query.device)
    _attend[(num_tiles, kv_heads, splits)](
        query,
        query.stride(0),
        cache,
        batch.block_tables,
        batch.block_tables.stride(0),
        batch.query_starts,
        batch.context_lengths,
        out if sinks is None else sinks,
        sequences,
        splits,
        dim**-0.5 if scale is None else scale,
        softcap or 1.0,
        parts,
        highest,
        totals,
        cache.shape[1],
        kv_heads,
        group,
        dim,
        block_dim,
        block_size,
        block_queries,
        block_keys,
        tile_rows,
        splits > 1,
        window or 0,
        chunk or 0,
        softcap is not None,
        sinks is not None,
        single_rows,
        "ieee" if query.dtype is torch.float32 else "tf32",
        num_warps=8 if block_queries * block_dim * query.itemsize >= _WIDE_TILE else 4,
        num_stages=2,
        enable_fp_fusion=True,
    )
    if splits > 1:
        _join[(rows * heads,)](
            parts,
            highest,
            totals,
            out,
            splits,
            dim,
            power_of_two(dim),
            _MAX_SPLITS,
            num_warps=4,
            enable_fp_fusion=True,
        )
    return out


def _tile(group: int, most_rows: int, dim: int, itemsize: int) -> tuple[int, int]:
    """Queries (rows times heads of a group) and keys of a tile, so that it fits shared memory anywhere."""
    wide = max(16, power_of_two(dim)) * itemsize
    most = 128 if wide <= 256 else 64 if wide <= 512 else 32
    wanted = group * most_rows
    queries = 16 if wanted <= 16 else min(most, 64 if wanted <= 64 else 128)  # few sizes to compile
    return max(16, power_of_two(group), queries), 64 if wide <= 256 else 32 if wide <= 512 else 16


def _splits(programs: int, context: int, device: torch.device) -> int:
    """Shares of each context, so that every multiprocessor has work."""
    wanted = _WAVES * _multiprocessors(device) // programs
    most = min(wanted, context // _MIN_SPLIT, _MAX_SPLITS)
    return max(most, 1)


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":  # Triton's interpreter
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
