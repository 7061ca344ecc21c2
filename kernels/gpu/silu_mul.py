"""`silu_mul` on GPUs: one pass."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from .jit import jit

_BLOCK = 1024


@jit
def _silu_mul(
    gate_up: tl.tensor, row_stride: int, out: tl.tensor, size: tl.constexpr, block: tl.constexpr
) -> None:
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < size
    gate = tl.load(gate_up + row * row_stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * row_stride + size + column, mask=inside, other=0.0).to(tl.float32)
    kind = out.dtype.element_ty
    silu = (gate / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32)  # rounded where torch rounds
    tl.store(out + row * size + column, (silu * up).to(kind), mask=inside)


def silu_mul(gate_up: Tensor) -> Tensor:
    """See `kernels/silu_mul.py`."""
    if gate_up.stride(-1) != 1:
        gate_up = gate_up.contiguous()
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((rows, size), dtype=gate_up.dtype, device=gate_up.device)
    if out.numel():
        _silu_mul[(rows, -(-size // _BLOCK))](
            gate_up, gate_up.stride(0), out, size, _BLOCK, num_warps=4, enable_fp_fusion=False
        )
    return out
