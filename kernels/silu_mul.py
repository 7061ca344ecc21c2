"""silu(gate) · up over one projection that holds both: the middle of a gated feed-forward.

On CPUs torch's two operations are as fast as one pass of our own (`examples/benchmarks/bench_kernels.py`), so
they stay.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .triton_jit import has_triton


def silu_mul(gate_up: Tensor) -> Tensor:
    """gate_up [rows, 2 · size], the gate first → [rows, size]."""
    if has_triton(gate_up):
        from .triton_silu_mul import silu_mul as on_gpu

        return on_gpu(gate_up)
    return silu_mul_reference(gate_up)


def silu_mul_reference(gate_up: Tensor) -> Tensor:
    """The same in plain torch."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up
