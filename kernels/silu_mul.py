"""silu(gate) · up over one projection that holds both: the middle of a gated feed-forward, in one pass."""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .gpu.jit import has_triton
from .native import CODES, native_for

LANES: Final = 16
"""Our own takes multiples of it."""


def silu_mul(gate_up: Tensor) -> Tensor:
    """gate_up [rows, 2 · size], the gate first → [rows, size]."""
    if has_triton(gate_up):
        from .gpu.silu_mul import silu_mul as on_gpu

        return on_gpu(gate_up)
    native, size = native_for(gate_up), gate_up.shape[-1] // 2
    known = gate_up.shape[-1] == 2 * size and size % LANES == 0
    if native is None or not known or gate_up.dim() != 2 or gate_up.stride(1) != 1:
        return silu_mul_reference(gate_up)
    rows = gate_up.shape[0]
    out = torch.empty((rows, size), dtype=gate_up.dtype)
    native.silu_mul(
        *(CODES[gate_up.dtype], gate_up.data_ptr(), rows, gate_up.stride(0), out.data_ptr()),
        *(size, torch.get_num_threads()),
    )
    return out


def silu_mul_reference(gate_up: Tensor) -> Tensor:
    """The same in plain torch."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up
