"""A `transformers` model whose linear layers are replaced by ours of fewer bits.

Knows modules, not what they are for: all that is exactly a linear layer. `--quantization` rounds those of the
decoder: the projection to logits lies outside, as it often shares its weight with the embedding.
`engine/models/transformers/reading.py` is next.
"""

from __future__ import annotations

from torch import Tensor, nn

from ....kernels.linear.quantized_linear import BitsWeight, linear_bits, quantize_linear
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


def rounded_in(model: nn.Module) -> list[Rounded]:
    """Layers of codes."""
    return [module for module in model.modules() if isinstance(module, Rounded)]
