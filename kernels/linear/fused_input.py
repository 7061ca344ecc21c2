"""What rows go through before a product: a norm, or silu(gate) · up of a projection that holds both.

Between the products of a decode step these small operations cost little, but calling each of them does: a
step reads so much that the interpreter is no longer in any cache. So a product of few rows takes them along
(`cpu/rows.h`), with the same numbers. Read `linear.py` next.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from ..layer_norm import layer_norm
from ..native import native_for
from ..rms_norm import rms_norm
from ..silu_mul import LANES, silu_mul

MOST_ROWS: Final = 64
"""Of many rows each operation is worth its call."""


class RmsNorm(NamedTuple):
    """Its weight [size], of the rows' type."""

    weight: Tensor
    eps: float


class LayerNorm(NamedTuple):
    """`scale` [2, size]: its weight, then its bias, of the rows' type."""

    scale: Tensor
    eps: float = 1e-5

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> LayerNorm:
        """Of a weight and a bias [size]."""
        return cls(torch.stack((weight, bias)), eps)

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, size] → the same."""
        return layer_norm(x, self.scale, self.eps)


Before = RmsNorm | LayerNorm | Literal["silu_mul"]


class NativeInput(NamedTuple):
    """A `Before` as the C kernels are told it."""

    how: int
    norm: int | None = None
    eps: float = 0.0


AS_IT_IS: Final = NativeInput(0)


def prepared(x: Tensor, before: Before | None) -> Tensor:
    """x [rows, size], or [rows, 2 · size] for `silu_mul` → [rows, size]."""
    if before is None:
        return x
    if before == "silu_mul":
        return silu_mul(x)
    return before(x) if isinstance(before, LayerNorm) else rms_norm(x, before.weight, before.eps)


def native_input(x: Tensor, before: Before, size: int) -> NativeInput | None:
    """How a C kernel is told to make such rows [rows, size] of x; None if it cannot."""
    if native_for(x) is None or x.ndim != 2 or not 0 < x.shape[0] <= MOST_ROWS or x.stride(1) != 1:
        return None
    if before == "silu_mul":
        return NativeInput(2) if x.shape[1] == 2 * size and size % LANES == 0 else None
    is_layer_norm, weight = isinstance(before, LayerNorm), before[0]
    shape = (2, size) if is_layer_norm else (size,)
    fits = x.shape[1] == size and weight.shape == shape and weight.dtype is x.dtype
    return (
        NativeInput(3 if is_layer_norm else 1, weight.data_ptr(), before.eps)
        if fits and weight.is_contiguous()
        else None
    )
