"""`write_kv` on GPUs: one program stores one row's keys and values, whatever their strides."""

from __future__ import annotations

import triton.language as tl
from torch import Tensor

from .jit import jit, power_of_two


@jit
def _write_kv(
    cache: tl.tensor,
    num_slots: int,
    slots: tl.tensor,
    key: tl.tensor,
    key_stride: int,
    value: tl.tensor,
    value_stride: int,
    heads: tl.constexpr,
    block_size: tl.constexpr,
    dim: tl.constexpr,
    block_heads: tl.constexpr,
    block_dim: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    if (slot < 0) | (slot >= num_slots):
        return
    head = tl.arange(0, block_heads)[:, None]
    column = tl.arange(0, block_dim)[None, :]
    inside = (head < heads) & (column < dim)
    place = (slot // block_size) * (2 * heads * block_size * dim) + (slot % block_size) * dim
    target = cache + place + head * (block_size * dim) + column
    tl.store(target, tl.load(key + row * key_stride + head * dim + column, mask=inside), mask=inside)
    target += heads * block_size * dim
    tl.store(target, tl.load(value + row * value_stride + head * dim + column, mask=inside), mask=inside)


def write_kv(cache: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    """See `kernels/attention/kv_cache.py`; but a row whose slot lies outside the cache is not stored, since
    finding out on the host would make it wait for the device."""
    assert cache.is_contiguous(), "the cache is addressed as a whole"
    _, _, heads, block_size, dim = cache.shape
    if key.stride()[1:] != (dim, 1) or key.dtype is not cache.dtype:
        key = key.to(cache.dtype).contiguous()
    if value.stride()[1:] != (dim, 1) or value.dtype is not cache.dtype:
        value = value.to(cache.dtype).contiguous()
    if slots.shape[0]:
        _write_kv[(slots.shape[0],)](
            cache,
            cache.shape[0] * block_size,
            slots.contiguous(),
            key,
            key.stride(0),
            value,
            value.stride(0),
            heads,
            block_size,
            dim,
            power_of_two(heads),
            power_of_two(dim),
            num_warps=4,
            enable_fp_fusion=False,
        )
