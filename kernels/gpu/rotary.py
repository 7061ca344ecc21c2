"""`apply_rotary` on GPUs. Which of its axes a frequency follows (M-RoPE) is settled in the table."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ..rotary import RotaryTable
from .jit import jit, power_of_two

_MAX_ELEMENTS = 2048  # of half the heads of one program


@jit
def _rotary(
    x: tl.tensor,
    row_stride: int,
    head_stride: int,
    cosines: tl.tensor,
    sines: tl.tensor,
    out: tl.tensor,
    heads: tl.constexpr,
    half: tl.constexpr,
    block_heads: tl.constexpr,
    block_half: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * block_heads + tl.arange(0, block_heads))[:, None]
    column = tl.arange(0, block_half)
    inside = (head < heads) & (column < half)[None, :]
    kind = out.dtype.element_ty
    cos = tl.load(cosines + row * half + column, mask=column < half, other=0.0).to(kind).to(tl.float32)
    sin = tl.load(sines + row * half + column, mask=column < half, other=0.0).to(kind).to(tl.float32)
    cos, sin = cos[None, :], sin[None, :]
    places = x + row * row_stride + head * head_stride + column[None, :]
    first = tl.load(places, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(places + half, mask=inside, other=0.0).to(tl.float32)
    # Each product is rounded before the sum, as torch does.
    left = (first * cos).to(kind).to(tl.float32) - (second * sin).to(kind).to(tl.float32)
    right = (second * cos).to(kind).to(tl.float32) + (first * sin).to(kind).to(tl.float32)
    target = out + (row * heads + head) * (2 * half) + column[None, :]
    tl.store(target, left.to(kind), mask=inside)
    tl.store(target + half, right.to(kind), mask=inside)


def apply_rotary(x: Tensor, table: RotaryTable) -> Tensor:
    """See `kernels/rotary.py`."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    rows, heads, dim = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    half = dim // 2
    block_half = power_of_two(half)
    block_heads = min(power_of_two(heads), max(1, _MAX_ELEMENTS // block_half))
    if out.numel():
        _rotary[(rows, -(-heads // block_heads))](
            x,
            x.stride(0),
            x.stride(1),
            table.cos.contiguous(),
            table.sin.contiguous(),
            out,
            heads,
            half,
            block_heads,
            block_half,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return out
