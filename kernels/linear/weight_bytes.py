"""Bytes that a weight takes once it is arranged for products: planned from its shape, or counted as it lies.

What `arrange_linear` (`linear.py`) would choose is known before a number is read, but for one thing: a weight
stored in 32 bits whose numbers all fit into 16 is held in 16. Such a one takes half of what is planned.
"""

from __future__ import annotations

import torch

from ..native import native_for
from .float32_tiles import WIDTH, TiledWeight
from .linear import AdaptedWeight, LinearWeight, PartedWeight
from .onednn import can_pack
from .quantized_linear import BitsWeight, num_packed_bytes
from .weight_codes import Grid


def is_tiled(size: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a weight of `size` inputs becomes tiles of ours where it is arranged."""
    like = torch.empty(0, dtype=dtype, device=device)
    if native_for(like) is None:
        return False
    return dtype is torch.float32 or (size % 2 == 0 and not can_pack(like))


def tiled_bytes(out: int, size: int, dtype: torch.dtype, *, is_narrow: bool) -> int:
    """Of tiles of a weight [out, size]; `is_narrow` if it is stored in 16 bits."""
    is_pairs = size % 2 == 0 and (is_narrow or dtype is torch.bfloat16)
    return -(-out // WIDTH) * WIDTH * size * (2 if is_pairs else dtype.itemsize)


def arranged_bytes(
    out: int, size: int, dtype: torch.dtype, device: torch.device, grid: Grid | None, *, is_narrow: bool
) -> int:
    """What `arrange_linear` will hold of a weight [out, size] without its bias."""
    if grid is not None:
        return num_packed_bytes(out, size, grid)
    if is_tiled(size, dtype, device):
        return tiled_bytes(out, size, dtype, is_narrow=is_narrow)
    return out * size * dtype.itemsize


def held_bytes(weight: LinearWeight) -> int:
    """What is held of a weight and its bias."""
    match weight:
        case AdaptedWeight():
            return held_bytes(weight.weight)
        case PartedWeight():
            return sum(map(held_bytes, weight.parts))
        case BitsWeight():
            return weight.nbytes
        case TiledWeight():
            numbers = weight.memory
        case _:
            numbers = weight.weight
    bias = 0 if weight.bias is None else weight.bias.nbytes
    return numbers.numel() * numbers.element_size() + bias
