"""RMS norms of a `transformers` model, each run by one kernel instead of six operations of torch.

Which modules are such norms is seen by what they compute: their classes differ by family, some multiply by
the weight, some by one more than it. `engine/models/transformers/model.py` is next.
"""

from __future__ import annotations

import inspect
import re
from typing import Final

import torch
from torch import Tensor, nn

from ....kernels.rms_norm import rms_norm

_NAMED: Final = re.compile(r"RMSNorm\d*$")
_DIFFERENCE: Final = 1e-6
"""Of float32 numbers, as a part of the largest: sums in another order."""


class FusedRmsNorm(nn.Module):
    """Stands for an RMS norm. It keeps the `weight`, whose type some models ask for, beside what the kernel
    multiplies by."""

    def __init__(self, weight: nn.Parameter, scale: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.scale = scale
        """[size]"""
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] → the same shape."""
        rows = x[0] if x.dim() == 4 and x.shape[0] == 1 else x.reshape(-1, x.shape[-1])
        return rms_norm(rows, self.scale, self.eps).view(x.shape)


def fuse_norms(decoder: nn.Module) -> None:
    """Replace in place those in float32 on a CPU that give what the kernel gives."""
    for name, module in list(decoder.named_modules()):
        fused = _fused(module)
        if fused is not None:
            decoder.set_submodule(name, fused)


def _fused(module: nn.Module) -> FusedRmsNorm | None:
    weights = dict(module.named_parameters())
    weight, eps = weights.get("weight"), getattr(module, "eps", getattr(module, "variance_epsilon", None))
    if not _NAMED.search(type(module).__name__) or len(weights) != 1 or weight is None:
        return None
    is_known = weight.dim() == 1 and weight.dtype is torch.float32 and weight.is_cpu
    if not is_known or not isinstance(eps, float):
        return None
    if len(inspect.signature(module.forward).parameters) != 1:
        return None  # it takes more than rows, as a gate
    rows = _rows(weight.shape[0])
    expected = module(rows)
    for scale in (weight.detach(), 1.0 + weight.detach()):
        fused = FusedRmsNorm(weight, scale, eps)
        if _is_alike(fused(rows), expected):
            return fused
    return None


def _rows(size: int) -> Tensor:
    """Large ones, and some so small that what is added to their squares counts."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, size, generator=generator) * torch.tensor([[1e-4], [1e-2], [1.0], [100.0]])


def _is_alike(ours: Tensor, theirs: object) -> bool:
    if not isinstance(theirs, Tensor) or theirs.shape != ours.shape or theirs.dtype is not ours.dtype:
        return False
    limit = _DIFFERENCE * theirs.abs().amax(-1, keepdim=True)
    return bool(((ours - theirs).abs() <= limit).all())
