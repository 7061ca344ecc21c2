"""Rotary position embedding: tables of cosines and sines for a step, and their application to q and k.

Plain positions have one axis. M-RoPE has three (time, height, width): each frequency follows one of them;
Qwen3-VL interleaves them (THWTHW…TT), see transformers' `Qwen3VLTextRotaryEmbedding`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .gpu.jit import has_triton
from .native import CODES, native_for


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """Cosines and sines [rows, head_dim / 2] of one step, float32."""

    cos: Tensor
    sin: Tensor


def rotary_table(
    positions: Tensor, inverse_frequencies: Tensor, *, axes: Tensor | None = None, scaling: float = 1.0
) -> RotaryTable:
    """positions int64 [rows] or [3, rows]; inverse_frequencies float32 [head_dim / 2].

    `axes` int64 [head_dim / 2] says which of three position axes each frequency follows.
    """
    if positions.dim() == 2:
        assert axes is not None, "three position axes need to know which frequency follows which"
        angles = positions.t().float()[:, axes] * inverse_frequencies
    else:
        angles = positions[:, None].float() * inverse_frequencies
    return RotaryTable(angles.cos() * scaling, angles.sin() * scaling)


def interleaved_axes(section: tuple[int, int, int]) -> Tensor:
    """`axes` of Qwen3-VL for `mrope_section` (t, h, w): every third frequency is h or w while they last."""
    axes = torch.zeros(sum(section), dtype=torch.int64)
    for axis in (1, 2):
        axes[axis : 3 * section[axis] : 3] = axis
    return axes


def apply_rotary(x: Tensor, table: RotaryTable) -> Tensor:
    """x [rows, heads, head_dim] → the same, contiguous, its two halves rotated against each other."""
    if has_triton(x):
        from .gpu.rotary import apply_rotary as on_gpu

        return on_gpu(x, table)
    native = native_for(x)
    half = x.shape[-1] // 2
    wanted = (x.shape[0], half)
    known = all(
        t.shape == wanted and t.dtype is torch.float32 and t.is_contiguous() for t in (table.cos, table.sin)
    )
    if native is None or not known or x.stride(-1) != 1:
        return apply_rotary_reference(x, table)
    rows, heads = x.shape[:2]
    out = torch.empty(x.shape, dtype=x.dtype)
    native.rotary(
        CODES[x.dtype],
        x.data_ptr(),
        rows,
        x.stride(0),
        heads,
        x.stride(1),
        table.cos.data_ptr(),
        table.sin.data_ptr(),
        out.data_ptr(),
        half,
        torch.get_num_threads(),
    )
    return out


def apply_rotary_reference(x: Tensor, table: RotaryTable) -> Tensor:
    """The same in plain torch, in x's own dtype as transformers does."""
    cos, sin = (torch.cat((each, each), -1)[:, None].to(x.dtype) for each in (table.cos, table.sin))
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin
