"""A layer of an encoder, or of Whisper's decoder: how its parts are taken from a checkpoint, and run.

`kernels/layers.py` says what the parts are; those of the decoders of prompts are taken and run in
`engine/models/dense/model.py`. Knows tensors, no requests.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from ...kernels.activation import Activation
from ...kernels.layers import CrossParts, LayerParts
from ...kernels.linear.fused_input import LayerNorm
from ...kernels.linear.linear import LinearWeight, linear
from ...protocols.errors import ModelLoadError
from .weights import TensorReader


def projected(layer: LayerParts, x: Tensor, num_heads: int) -> Tensor:
    """Queries, keys and values of rows [rows, size]: [rows, 3, heads, dim]."""
    return linear(x, layer.qkv, before=layer.norm).view(x.shape[0], 3, num_heads, -1)


def attended(layer: LayerParts, x: Tensor, mixed: Tensor) -> Tensor:
    """The rows behind attention, which gave `mixed` [rows, heads, dim]."""
    return linear(mixed.reshape(x.shape), layer.out, residual=x)


def fed_forward(layer: LayerParts, x: Tensor, activation: Activation) -> Tensor:
    """The rows behind the feed-forward."""
    hidden = linear(x, layer.up, activation=activation, before=layer.last_norm)
    return linear(hidden, layer.down, residual=x)


def activation_of(config: PreTrainedConfig, path: Path) -> Activation:
    """The feed-forward's, of an encoder of audio. Raises ModelLoadError."""
    name = config.activation_function
    if name not in ("gelu", "relu"):
        raise ModelLoadError(f"{path}: activation_function {name!r} is not one of gelu, relu")
    return cast(Activation, name)


def take_layer(tensors: TensorReader, name: str, cross: CrossParts | None = None) -> LayerParts:
    """A layer as Whisper and Qwen3-ASR name its parts; keys may have no bias."""
    attention = f"{name}.self_attn"
    query, value = (tensors.take(f"{attention}.{part}_proj.bias") for part in "qv")
    key_bias = f"{attention}.k_proj.bias"
    key = tensors.take(key_bias) if key_bias in tensors else torch.zeros_like(query)
    weights = [f"{attention}.{part}_proj.weight" for part in "qkv"]
    return LayerParts(
        norm=take_norm(tensors, f"{attention}_layer_norm"),
        qkv=tensors.take_linear(*weights, bias=torch.cat([query, key, value])),
        out=take_biased(tensors, f"{attention}.out_proj"),
        last_norm=take_norm(tensors, f"{name}.final_layer_norm"),
        up=take_biased(tensors, f"{name}.fc1"),
        down=take_biased(tensors, f"{name}.fc2"),
        cross=cross,
    )


def take_norm(tensors: TensorReader, name: str, eps: float = 1e-5) -> LayerNorm:
    """Of `name.weight` and `name.bias`."""
    return LayerNorm.of(tensors.take(f"{name}.weight"), tensors.take(f"{name}.bias"), eps)


def take_biased(tensors: TensorReader, name: str) -> LinearWeight:
    """The product of `name.weight` and `name.bias`."""
    return tensors.take_linear(f"{name}.weight", bias=tensors.take(f"{name}.bias"))


def in_range(x: Tensor) -> Tensor:
    """Rows of float16 without what would overflow in the next layer; others as they are."""
    if x.dtype is not torch.float16:
        return x
    limit = torch.finfo(torch.float16).max - 1000
    return x.clamp(-limit, limit)
