"""Linear layers of a `transformers` model: replaced by ours of fewer bits, changed by adapters in some rows.

Knows modules, not what they are for: all that is exactly a linear layer. `--quantization` rounds those of the
decoder: the projection to logits lies outside, as it often shares its weight with the embedding.
`engine/models/transformers/reading.py` is next.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

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


def adapt_linears(decoder: nn.Module, prefix: str) -> None:
    """Let adapters change them, plain or rounded, by the names of their weights under `prefix`."""
    for name, module in decoder.named_modules():
        if isinstance(module, nn.Linear | Rounded):
            module.register_forward_hook(partial(_add_changes, (f"{prefix}.{name}.weight",)))


def _add_changes(
    names: tuple[str, ...], module: nn.Linear | Rounded, inputs: tuple[Tensor, ...], y: Tensor
) -> None:
    """After a layer's forward, in place: inputs [..., in] and y [..., out]."""
    if is_adapting():
        (x,) = inputs
        add_changes(y.view(-1, y.shape[-1]), x.reshape(-1, x.shape[-1]), names)


def rounded_in(model: nn.Module) -> list[Rounded]:
    """Layers of codes."""
    return [module for module in model.modules() if isinstance(module, Rounded)]
