"""A `transformers` decoder whose linear layers are replaced by ours of fewer bits.

Knows modules, not what they are for: all that is exactly a linear layer. The projection to logits lies
outside, as it often shares its weight with the embedding. `engine/models/transformers/model.py` is next.
"""

from __future__ import annotations

from torch import Tensor, nn

from ....kernels.codes import GRIDS, Grid, Quantization
from ....kernels.linear_bits import linear_bits, quantize_linear


class Rounded(nn.Module):
    """Stands for a linear layer whose weight became codes."""

    def __init__(self, weight: Tensor, bias: Tensor | None, grid: Grid) -> None:
        super().__init__()
        self.codes = quantize_linear(weight, bias, grid)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out]."""
        return linear_bits(x.reshape(-1, x.shape[-1]), self.codes).view(*x.shape[:-1], self.codes.out)


def rounded_names(decoder: nn.Module) -> set[str]:
    """The weights that `round_linears` replaces."""
    return {f"{name}.weight" for name, module in decoder.named_modules() if type(module) is nn.Linear}


def round_linears(decoder: nn.Module, quantization: Quantization) -> int:
    """Replace them in place; give how many bytes more are held then (fewer, that is)."""
    grid, num_bytes = GRIDS[quantization], 0
    if grid is None:
        return 0
    for name in sorted(rounded_names(decoder)):
        layer = name.removesuffix(".weight")
        module = decoder.get_submodule(layer)
        assert isinstance(module, nn.Linear), "that is how it was chosen"
        rounded = Rounded(module.weight, module.bias, grid)
        decoder.set_submodule(layer, rounded)
        num_bytes += rounded.codes.packed.nbytes - module.weight.nbytes
    return num_bytes
