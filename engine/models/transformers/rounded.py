"""A `transformers` model whose linear layers are replaced by ours of fewer bits.

Knows modules, not what they are for: all that is exactly a linear layer. `--quantization` rounds those of the
decoder: the projection to logits lies outside, as it often shares its weight with the embedding. A checkpoint
published in codes keeps them. `engine/models/transformers/model.py` is next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ....kernels.codes import GRIDS, Quantization
from ....kernels.linear_bits import BitsWeight, linear_bits, quantize_linear
from ..weights import TensorReader


class Rounded(nn.Module):
    """Stands for a linear layer whose weight became codes."""

    def __init__(self, codes: BitsWeight) -> None:
        super().__init__()
        self.codes = codes

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out]."""
        return linear_bits(x.reshape(-1, x.shape[-1]), self.codes).view(*x.shape[:-1], self.codes.out)


class Published(NamedTuple):
    """What a checkpoint in fewer bits holds."""

    numbers: dict[str, Tensor]
    """By name. Where a layer of codes goes, one zero has the weight's shape and no memory of it."""
    layers: dict[str, Rounded]


def linear_names(model: nn.Module) -> set[str]:
    """The weights that may become codes."""
    return {f"{name}.weight" for name, module in model.named_modules() if type(module) is nn.Linear}


def read_published(tensors: TensorReader, skeleton: nn.Module, tied: Iterable[str]) -> Published:
    """All that a checkpoint holds for a model; of names that are `tied` to others what is there. Raises
    ModelLoadError."""
    linears, published = linear_names(skeleton), Published({}, {})
    for name, parameter in skeleton.named_parameters():
        if name in published.numbers:  # the bias of a layer of codes
            continue
        if name not in linears or not tensors.are_codes(name):
            published.numbers[name] = tensors.take(name)
            continue
        layer = name.removesuffix(".weight")
        bias = tensors.take(f"{layer}.bias") if f"{layer}.bias" in tensors else None
        codes = tensors.take_linear(name, bias=bias)
        assert isinstance(codes, BitsWeight), "one weight of codes"
        published.layers[layer] = Rounded(codes)
        published.numbers[name] = torch.zeros((), dtype=tensors.dtype).expand(parameter.shape)
        if bias is not None:
            published.numbers[f"{layer}.bias"] = bias
    copies = [name for name in tied if name in tensors]
    published.numbers.update({name: tensors.take(name) for name in copies})
    tensors.finish()
    return published


def round_linears(decoder: nn.Module, quantization: Quantization) -> None:
    """Replace them in place."""
    grid = GRIDS[quantization]
    if grid is None:
        return
    for name in sorted(linear_names(decoder)):
        layer = name.removesuffix(".weight")
        module = decoder.get_submodule(layer)
        assert isinstance(module, nn.Linear), "that is how it was chosen"
        decoder.set_submodule(layer, Rounded(quantize_linear(module.weight, module.bias, grid)))


def rounded_in(model: nn.Module) -> list[Rounded]:
    """Layers of codes."""
    return [module for module in model.modules() if isinstance(module, Rounded)]
