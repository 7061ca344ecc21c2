"""Layer normalisation and biased products of the encoders, and taking them from a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ...kernels.linear import LinearWeight
from .weights import TensorReader


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Over the last axis."""

    weight: Tensor
    bias: Tensor
    eps: float = 1e-5

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


def take_norm(tensors: TensorReader, name: str, eps: float = 1e-5) -> LayerNorm:
    """Of `name.weight` and `name.bias`."""
    return LayerNorm(tensors.take(f"{name}.weight"), tensors.take(f"{name}.bias"), eps)


def take_biased(tensors: TensorReader, name: str) -> LinearWeight:
    """The product of `name.weight` and `name.bias`."""
    return tensors.take_linear(f"{name}.weight", bias=tensors.take(f"{name}.bias"))
