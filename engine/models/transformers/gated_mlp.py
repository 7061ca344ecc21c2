"""Gated feed-forwards of a `transformers` model, each run as two products instead of three and an activation.

Both halves of the middle are one product, and the activation is part of the last one. Which modules are such
feed-forwards is seen by their parts and by what they compute. `engine/models/transformers/rounded.py` has the
layers whose tiles are joined, `engine/models/transformers/model.py` is next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from ....kernels.host_memory import use_large_pages
from ....kernels.linear.float32_tiles import WIDTH, TiledWeight, linear_tiled
from .rounded import Tiled

_PARTS: Final = ("gate_proj", "up_proj", "down_proj")
_DIFFERENCE: Final = 1e-5
"""Of float32 numbers, as a part of the largest: another approximation of the exponential."""


class GatedMlp(nn.Module):
    """Stands for down(silu(gate(x)) · up(x)), with the tiles of the first two in one weight."""

    def __init__(self, gate_up: TiledWeight, down: Tiled) -> None:
        super().__init__()
        self.gate_up = Tiled(gate_up)
        self.down_proj = down

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] → the same shape."""
        middle = linear_tiled(x.reshape(-1, x.shape[-1]), self.gate_up.tiles)
        return linear_tiled(middle, self.down_proj.tiles, before="silu_mul").view(x.shape)


def fuse_gated_mlps(decoder: nn.Module) -> None:
    """Replace in place those of tiles that give what the two products give."""
    for name, module in list(decoder.named_modules()):
        fused = _fused(module)
        if fused is not None:
            decoder.set_submodule(name, fused)


def _fused(module: Any) -> GatedMlp | None:  # noqa: ANN401 (of any family)
    parts = [getattr(module, name, None) for name in _PARTS]
    tiled = [each for each in parts if isinstance(each, Tiled)]
    if len(tiled) != len(_PARTS) or sum(1 for _ in module.modules()) > len(_PARTS) + 2:
        return None  # it has more than these, itself and an activation
    gate, up, down = (each.tiles for each in tiled)
    if (gate.kind, gate.size, gate.out) != (up.kind, up.size, up.out) or gate.out % WIDTH:
        return None
    if gate.bias is not None or up.bias is not None or down.out != gate.size or down.size != gate.out:
        return None
    rows = torch.randn(1, 2, gate.size, generator=torch.Generator().manual_seed(0))
    try:
        expected = module(rows)
    except TypeError:  # it takes more than rows
        return None
    if not isinstance(expected, Tensor) or expected.shape != rows.shape:
        return None
    joined = torch.cat((gate.memory, up.memory))
    use_large_pages(joined.data_ptr(), joined.nbytes)
    fused = GatedMlp(replace(gate, memory=joined, out=2 * gate.out), tiled[2])
    limit = _DIFFERENCE * expected.abs().max()
    return fused if bool(((fused(rows) - expected).abs() <= limit).all()) else None
