"""Weights as codes: whole numbers of 8 or 4 bits, with a scale and a zero point for each group of inputs.

w ≈ (code − zero) · scale. `quantize` rounds a weight to codes; published checkpoints bring theirs. How codes
are multiplied is `kernels/linear/quantized_linear.py`'s business. Knows tensors only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

NumBits = Literal[4, 8]

MIDDLE: Final = 128
"""Zero point of 8-bit codes of numbers that lie as far below zero as above."""
_LARGEST_BYTE: Final = 127
_LARGEST_NIBBLE: Final = 15


class Grid(NamedTuple):
    """How fine codes are: of so many bits, with a scale for every `group` inputs (0: one for all)."""

    bits: NumBits
    group: int


Quantization = Literal["none", "int8", "int4"]
"""What an operator asks for."""
GRIDS: Final[dict[Quantization, Grid | None]] = {"none": None, "int8": Grid(8, 128), "int4": Grid(4, 128)}
"""With a scale for each group of inputs one large input does not coarsen all others of its row. SmolLM2-135M
in 8 bits loses a third of what it loses with one for all, for 4 % more bytes: docs/performance/kernels.md."""
HEAD_GRID: Final = Grid(8, 128)
"""Of the projection to logits, whichever is asked for: near ties are decided there."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A weight [out, in]: `values` uint8 [out, in], `scales` float32 and `zeros` uint8 [out, groups].

    A group is `group` inputs that follow each other, the last one may have fewer.
    """

    bits: NumBits
    group: int
    values: Tensor
    scales: Tensor
    zeros: Tensor

    def weight(self) -> Tensor:
        """What the codes stand for, float32 [out, in]."""
        size = self.values.shape[1]
        scales, zeros = (
            each.repeat_interleave(self.group, dim=1)[:, :size] for each in (self.scales, self.zeros)
        )
        return (self.values.float() - zeros.float()) * scales


def quantize(weight: Tensor, grid: Grid) -> Codes:
    """The nearest codes of a weight [out, in].

    8 bits lie symmetrically around zero, up to ±127 steps, which the largest number of a group fills; 4 bits
    go from the least to the largest, zero included.
    """
    out, size = weight.shape
    group = grid.group or size
    grouped = F.pad(weight.float(), (0, -size % group)).view(out, -1, group)
    if grid.bits == 8:
        scales = grouped.abs().amax(2) / _LARGEST_BYTE
        zeros = torch.full_like(scales, MIDDLE)
    else:
        low, high = grouped.amin(2).clamp_max(0.0), grouped.amax(2).clamp_min(0.0)
        scales = (high - low) / _LARGEST_NIBBLE
        zeros = (-low / torch.where(scales > 0, scales, 1.0)).round()
    steps = grouped / torch.where(scales > 0, scales, 1.0)[:, :, None]
    largest = 255 if grid.bits == 8 else _LARGEST_NIBBLE
    values = (steps.round() + zeros[:, :, None]).clamp_(0, largest)
    flat = values.to(torch.uint8).view(out, -1)[:, :size]
    return Codes(grid.bits, group, flat, scales, zeros.to(torch.uint8))
