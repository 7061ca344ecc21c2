"""x / rms(x) · weight, in float32 inside."""

from __future__ import annotations

import torch
from torch import Tensor

from .gpu.jit import has_triton
from .native import CODES, native_for


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [rows, size] or [rows, heads, size] (a view of a projection will do), weight [size] of the same dtype
    → the same shape and dtype as x, contiguous."""
    if has_triton(x):
        from .gpu.rms_norm import rms_norm as on_gpu

        return on_gpu(x, weight, eps)
    native = native_for(x)
    known = x.dtype is weight.dtype and weight.shape == x.shape[-1:] and weight.is_contiguous()
    if native is None or not known or x.dim() not in (2, 3) or x.stride(-1) != 1:
        return rms_norm_reference(x, weight, eps)
    inner, inner_stride = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
    out = torch.empty(x.shape, dtype=x.dtype)
    native.rms_norm(
        CODES[x.dtype],
        x.data_ptr(),
        x.shape[0],
        x.stride(0),
        inner,
        inner_stride,
        weight.data_ptr(),
        eps,
        out.data_ptr(),
        x.shape[-1],
        torch.get_num_threads(),
    )
    return out


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same in plain torch, rounded where transformers' `Qwen3RMSNorm` rounds."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)
