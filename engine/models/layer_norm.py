"""Taking the layer norms and the biased products of encoders from a checkpoint."""

from __future__ import annotations

from ...kernels.before import LayerNorm
from ...kernels.linear import LinearWeight
from .weights import TensorReader


def take_norm(tensors: TensorReader, name: str, eps: float = 1e-5) -> LayerNorm:
    """Of `name.weight` and `name.bias`."""
    return LayerNorm.of(tensors.take(f"{name}.weight"), tensors.take(f"{name}.bias"), eps)


def take_biased(tensors: TensorReader, name: str) -> LinearWeight:
    """The product of `name.weight` and `name.bias`."""
    return tensors.take_linear(f"{name}.weight", bias=tensors.take(f"{name}.bias"))
