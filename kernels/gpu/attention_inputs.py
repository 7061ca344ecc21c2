"""`attention_inputs` on GPUs: a program takes some heads of a row from the projection to their places."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ..attention.attention_inputs import HeadNorms
from ..rotary import RotaryTable
from .jit import jit, power_of_two

_MAX_ELEMENTS = 1024  # of half the heads of one program


@jit
def _attention_inputs(
    qkv: tl.tensor,
    row_stride: int,
    query_norm: tl.tensor,
    key_norm: tl.tensor,
    eps: float,
    cosines: tl.tensor,
    sines: tl.tensor,
    cache: tl.tensor,
    num_slots: int,
    slots: tl.tensor,
    out: tl.tensor,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    half: tl.constexpr,
    block_size: tl.constexpr,
    block_heads: tl.constexpr,
    block_half: tl.constexpr,
    normed: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * block_heads + tl.arange(0, block_heads))[:, None]
    column = tl.arange(0, block_half)[None, :]
    is_column = column < half
    inside = (head < heads + 2 * kv_heads) & is_column
    kind = out.dtype.element_ty
    dim: tl.constexpr = 2 * half
    source = qkv + row * row_stride + head * dim + column
    raw_left = tl.load(source, mask=inside, other=0.0)
    raw_right = tl.load(source + half, mask=inside, other=0.0)

    left, right = raw_left.to(tl.float32), raw_right.to(tl.float32)
    of_query = (head < heads) & is_column
    of_key = (head >= heads) & is_column
    if normed:
        scale = tl.rsqrt((tl.sum(left * left, 1) + tl.sum(right * right, 1)) / dim + eps)[:, None]
        weight = tl.load(query_norm + column + head * 0, mask=of_query, other=0.0).to(tl.float32)
        weight += tl.load(key_norm + column + head * 0, mask=of_key, other=0.0).to(tl.float32)
        left = (weight * (left * scale).to(kind).to(tl.float32)).to(kind).to(tl.float32)
        weight = tl.load(query_norm + half + column + head * 0, mask=of_query, other=0.0).to(tl.float32)
        weight += tl.load(key_norm + half + column + head * 0, mask=of_key, other=0.0).to(tl.float32)
        right = (weight * (right * scale).to(kind).to(tl.float32)).to(kind).to(tl.float32)

    cos = tl.load(cosines + row * half + column, mask=is_column, other=0.0).to(kind).to(tl.float32)
    sin = tl.load(sines + row * half + column, mask=is_column, other=0.0).to(kind).to(tl.float32)
    turned_left = (left * cos).to(kind).to(tl.float32) - (right * sin).to(kind).to(tl.float32)
    turned_right = (right * cos).to(kind).to(tl.float32) + (left * sin).to(kind).to(tl.float32)

    target = out + (row * heads + head) * dim + column
    tl.store(target, turned_left.to(kind), mask=of_query)
    tl.store(target + half, turned_right.to(kind), mask=of_query)

    slot = tl.load(slots + row) + head * 0
    is_value = head >= heads + kv_heads
    kept = inside & (head >= heads) & (slot >= 0) & (slot < num_slots)
    place = (slot // block_size) * (2 * kv_heads * block_size * dim) + (slot % block_size) * dim
    # Values follow all heads' keys of a block, so that counting heads on leads to them.
    target = cache + place + (head - heads) * (block_size * dim) + column
    tl.store(target, tl.where(is_value, raw_left, turned_left.to(kind)), mask=kept)
    tl.store(target + half, tl.where(is_value, raw_right, turned_right.to(kind)), mask=kept)


def attention_inputs(
    qkv: Tensor, norms: HeadNorms | None, table: RotaryTable, cache: Tensor, slots: Tensor
) -> Tensor:
    """See `kernels/attention/attention_inputs.py`; a row whose slot lies outside the cache is not stored."""
    rows, all_heads, dim = qkv.shape
    kv_heads, block_size = cache.shape[2:4]
    heads, half = all_heads - 2 * kv_heads, dim // 2
    assert cache.is_contiguous(), "the cache is addressed as a whole"
    assert cache.dtype is qkv.dtype, "keys are stored as they are computed"
    if qkv.stride()[1:] != (dim, 1):
        qkv = qkv.contiguous()
    out = torch.empty((rows, heads, dim), dtype=qkv.dtype, device=qkv.device)
    block_half = power_of_two(half)
    block_heads = min(power_of_two(all_heads), max(1, _MAX_ELEMENTS // block_half))
    if rows:
        _attention_inputs[(rows, -(-all_heads // block_heads))](
            qkv,
            qkv.stride(0),
            qkv if norms is None else norms.query.contiguous(),  # never read where there are no norms
            qkv if norms is None else norms.key.contiguous(),
            0.0 if norms is None else norms.eps,
            table.cos.contiguous(),
            table.sin.contiguous(),
            cache,
            cache.shape[0] * block_size,
            slots.contiguous(),
            out,
            heads,
            kv_heads,
            half,
            block_size,
            block_heads,
            block_half,
            norms is not None,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return out
