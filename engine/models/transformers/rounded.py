"""Linear layers of a `transformers` model: replaced by ours, exact or of fewer bits, changed by adapters in
some rows.

Knows modules, not what they are for: all that is exactly a linear layer. `--quantization` rounds those of the
decoder: the projection to logits lies outside, as it often shares its weight with the embedding. Those in
float32 read the 16 bits that a checkpoint stored (`kernels/linear/float32_tiles.py`), half of what torch
would. `engine/models/transformers/reading.py` is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ....kernels.linear.float32_tiles import TiledWeight, linear_tiled, tile_linear, untiled
from ....kernels.linear.quantized_linear import BitsWeight, linear_bits, quantize_linear
from ....kernels.linear.row_adapters import add_changes, is_adapting
from ....kernels.linear.weight_codes import GRIDS, Quantization


class Rounded(nn.Module):
    """Stands for a linear layer whose weight became codes."""

    def __init__(self, codes: BitsWeight) -> None:
        super().__init__()
        self.codes = codes

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out]."""
        return linear_bits(x.reshape(-1, x.shape[-1]), self.codes).view(*x.shape[:-1], self.codes.out)


class Tiled(nn.Module):
    """Stands for a linear layer in float32: the same numbers, as our own loop reads them."""

    def __init__(self, tiles: TiledWeight) -> None:
        super().__init__()
        self.tiles = tiles

    @property
    def weight(self) -> Tensor:
        """[out, in], made anew for code that multiplies with it by itself."""
        return untiled(self.tiles)

    @property
    def bias(self) -> Tensor | None:
        """[out]"""
        return self.tiles.bias

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out]."""
        return linear_tiled(x.reshape(-1, x.shape[-1]), self.tiles).view(*x.shape[:-1], self.tiles.out)


def linear_names(model: nn.Module) -> set[str]:
    """The weights that may become codes."""
    return {f"{name}.weight" for name, module in model.named_modules() if type(module) is nn.Linear}


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


def tile_linears(model: nn.Module, kept: Iterable[Tensor] = ()) -> None:
    """Replace those in float32 in place. Of a weight among `kept`, which another module holds, the tiles are
    a copy: it is made where it has 16 bits a number."""
    held = {id(each) for each in kept}
    for name in sorted(linear_names(model)):
        layer = name.removesuffix(".weight")
        module = model.get_submodule(layer)
        assert isinstance(module, nn.Linear), "that is how it was chosen"
        weight, bias = module.weight, module.bias
        if weight.dtype is not torch.float32 or not weight.is_cpu:
            continue
        tiles = tile_linear(weight.detach(), None if bias is None else bias.detach())
        if tiles is not None and not (tiles.kind == "floats" and id(weight) in held):
            model.set_submodule(layer, Tiled(tiles))


def adapt_linears(decoder: nn.Module, prefix: str) -> None:
    """Let adapters change them, plain or rounded, by the names of their weights under `prefix`."""
    for name, module in decoder.named_modules():
        if isinstance(module, nn.Linear | Rounded | Tiled):
            module.register_forward_hook(partial(_add_changes, (f"{prefix}.{name}.weight",)))


def _add_changes(
    names: tuple[str, ...], module: nn.Linear | Rounded | Tiled, inputs: tuple[Tensor, ...], y: Tensor
) -> None:
    """After a layer's forward, in place: inputs [..., in] and y [..., out]."""
    if is_adapting():
        (x,) = inputs
        add_changes(y.view(-1, y.shape[-1]), x.reshape(-1, x.shape[-1]), names)


def read_bytes(parts: Sequence[nn.Module]) -> int:
    """Of the weights that a step reads whole, each counted once: rows of an embedding are looked up."""
    modules = [module for part in parts for module in part.modules() if not isinstance(module, nn.Embedding)]
    numbers = {id(each): each.nbytes for module in modules for each in module.parameters(recurse=False)}
    codes = [module.codes.nbytes for module in modules if isinstance(module, Rounded)]
    tiles = [module.tiles.memory.nbytes for module in modules if isinstance(module, Tiled)]
    return sum((*numbers.values(), *codes, *tiles))


def rounded_in(model: nn.Module) -> list[Rounded]:
    """Layers of codes."""
    return [module for module in model.modules() if isinstance(module, Rounded)]
