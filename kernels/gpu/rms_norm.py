"""`rms_norm` on GPUs: one program norms a few heads of a row, in registers."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from .jit import jit, power_of_two

_MAX_ELEMENTS = 4096  # of one program


@jit
def _rms_norm(
    x: tl.tensor,
    row_stride: int,
    head_stride: int,
    weight: tl.tensor,
    eps: float,
    out: tl.tensor,
    heads: tl.constexpr,
    size: tl.constexpr,
    block_heads: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * block_heads + tl.arange(0, block_heads)
    column = tl.arange(0, block_size)
    inside = (head < heads)[:, None] & (column < size)[None, :]
    places = row * row_stride + head[:, None] * head_stride + column[None, :]
    wide = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    wide = wide * tl.rsqrt(tl.sum(wide * wide, 1) / size + eps)[:, None]
    scale = tl.load(weight + column, mask=column < size, other=0.0)
    kind = out.dtype.element_ty
    result = scale.to(tl.float32)[None, :] * wide.to(kind).to(tl.float32)
    tl.store(out + (row * heads + head[:, None]) * size + column[None, :], result.to(kind), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `kernels/rms_norm.py`."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    heads, head_stride = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
    size = x.shape[-1]
    block_size = power_of_two(size)
    block_heads = min(power_of_two(heads), max(1, _MAX_ELEMENTS // block_size))
    if out.numel():
        _rms_norm[(x.shape[0], -(-heads // block_heads))](
            x,
            x.stride(0),
            head_stride,
            weight.contiguous(),
            eps,
            out,
            heads,
            size,
            block_heads,
            block_size,
            num_warps=8 if block_heads * block_size > 2048 else 4,
            enable_fp_fusion=False,
        )
    return out
