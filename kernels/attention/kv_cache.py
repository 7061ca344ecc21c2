"""Writes keys and values of new tokens into one layer's paged cache, and reads a sequence's back.

A layer's cache is [blocks, 2, kv_heads, block_size, head_dim]: what one head reads of one block is
contiguous. One of latents (MLA) is [blocks, 1, 1, block_size, dim]: a vector is key and value of all heads.
One of 8 bits is as `kv_quantization.py` says. Who owns which block is the scheduler's knowledge,
not this file's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..gpu.jit import has_triton
from ..native import CODES, Native, native_for
from .kv_quantization import CODED, MULTIPLE, decode, head_size, write_codes


def write_kv(cache: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    """Store key and value [rows, kv_heads, head_dim] at `slots` (int64 [rows]: block · block_size + offset).

    The cache is contiguous; key and value may be views of a projection. Raises IndexError for a slot
    outside the cache; on a GPU such a row is not stored instead.
    """
    if cache.dtype is CODED:
        _write_codes(cache, slots, key, value)
        return
    if has_triton(cache):
        from ..gpu.kv_cache import write_kv as on_gpu

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
        _check_slots(slots, cache)
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
    check_written(bad, slots, cache)


def _check_slots(slots: Tensor, cache: Tensor) -> None:
    """Torch would take a negative slot from the end. A GPU would have to be waited for."""
    if slots.is_cpu:
        outside = ((slots < 0) | (slots >= cache.shape[0] * cache.shape[3])).nonzero()
        check_written(int(outside[0]) if len(outside) else -1, slots, cache)


def check_written(bad: int, slots: Tensor, cache: Tensor) -> None:
    """Raise IndexError if row `bad` has no place; it is −1 if all have."""
    if bad >= 0:
        raise IndexError(f"slot {int(slots[bad])} lies outside a cache of {cache.shape[0]} blocks")


def takes_codes(native: Native | None, cache: Tensor) -> bool:
    """Whether the C kernels work on this cache of codes, which is theirs to read and write in one piece."""
    sizes = (head_size(cache), cache.shape[3])
    return native is not None and cache.is_contiguous() and not any(size % MULTIPLE for size in sizes)


def _write_codes(cache: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    native, heads, dim = native_for(key), cache.shape[2], head_size(cache)
    shape = (slots.shape[0], heads, dim)
    known = key.dtype is value.dtype and all(
        each.shape == shape and each.stride()[1:] == (dim, 1) for each in (key, value)
    )
    if native is None or not takes_codes(native, cache) or not known or not slots.is_contiguous():
        _check_slots(slots, cache)
        write_codes(cache, slots, key, value)
        return
    bad = native.write_codes(
        CODES[key.dtype],
        cache.data_ptr(),
        cache.shape[0],
        slots.data_ptr(),
        key.data_ptr(),
        key.stride(0),
        value.data_ptr(),
        value.stride(0),
        key.shape[0],
        heads,
        cache.shape[3],
        dim,
        torch.get_num_threads(),
    )
    check_written(bad, slots, cache)


def write_kv_reference(cache: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    """The same in plain torch."""
    if cache.dtype is CODED:
        write_codes(cache, slots, key, value)
        return
    block_size = cache.shape[3]
    blocks, offsets = torch.div(slots, block_size, rounding_mode="floor"), slots % block_size
    cache[blocks, 0, :, offsets] = key
    cache[blocks, 1, :, offsets] = value


def write_latents(cache: Tensor, slots: Tensor, latents: Tensor, first: int = 0) -> None:
    """Store latents [rows, size], from number `first` of a vector on, at `slots` of a cache [blocks, 1, 1,
    block_size, dim]. Raises IndexError for a slot outside the cache; on a GPU such a row ends the process."""
    _check_slots(slots, cache)
    cache.view(-1, cache.shape[4])[:, first : first + latents.shape[1]].index_copy_(0, slots, latents)


def gather_kv(cache: Tensor, block_table: Tensor, num_positions: int) -> tuple[Tensor, Tensor]:
    """Keys and values [kv_heads, num_positions, head_dim] of one sequence (views of one copy); of codes what
    they stand for, float32. Latents are both."""
    block_size = cache.shape[3]
    blocks = cache.index_select(0, block_table[: -(-num_positions // block_size)])
    if cache.dtype is CODED:
        blocks = decode(blocks)
    both = blocks.permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :num_positions]
    return both[0], both[-1]
