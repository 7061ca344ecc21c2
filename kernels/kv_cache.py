"""Writes keys and values of new tokens into one layer's paged cache, and reads a sequence's back.

A layer's cache is [blocks, 2, kv_heads, block_size, head_dim]: what one head reads of one block is
contiguous. Who owns which block is the scheduler's knowledge, not this file's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .native import native_for
from .triton_jit import has_triton


def write_kv(cache: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    """Store key and value [rows, kv_heads, head_dim] at `slots` (int64 [rows]: block · block_size + offset).

    The cache is contiguous; key and value may be views of a projection. Raises IndexError for a slot
    outside the cache; on a GPU such a row is not stored instead.
    """
    if has_triton(cache):
        from .triton_kv_cache import write_kv as on_gpu

        on_gpu(cache, slots, key, value)
        return
    native = native_for(cache)
    _, _, heads, block_size, dim = cache.shape
    size, shape = cache.itemsize, (slots.shape[0], heads, dim)
    known = all(
        each.shape == shape and each.stride()[1:] == (dim, 1) and each.dtype is cache.dtype
        for each in (key, value)
    )
    if native is None or not known or not cache.is_contiguous() or not slots.is_contiguous():
        write_kv_reference(cache, slots, key, value)
        return
    bad = native.write_kv(
        cache.data_ptr(),
        cache.shape[0],
        slots.data_ptr(),
        key.data_ptr(),
        key.stride(0) * size,
        value.data_ptr(),
        value.stride(0) * size,
        key.shape[0],
        heads,
        block_size,
        dim * size,
    )
    if bad >= 0:
        raise IndexError(f"slot {int(slots[bad])} lies outside a cache of {cache.shape[0]} blocks")


def write_kv_reference(cache: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    """The same in plain torch."""
    block_size = cache.shape[3]
    blocks, offsets = torch.div(slots, block_size, rounding_mode="floor"), slots % block_size
    cache[blocks, 0, :, offsets] = key
    cache[blocks, 1, :, offsets] = value


def gather_kv(cache: Tensor, block_table: Tensor, num_positions: int) -> tuple[Tensor, Tensor]:
    """Keys and values [kv_heads, num_positions, head_dim] of one sequence (views of one copy)."""
    block_size = cache.shape[3]
    used = block_table[: -(-num_positions // block_size)]
    both = cache.index_select(0, used).permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :num_positions]
    return both[0], both[1]
