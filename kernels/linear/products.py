"""Weights written down for C, which makes calls of products by itself.

Where rows are few one product after another costs the interpreter more than the products cost. `layers.py`
and `few_experts.py` have such calls; `cpu/product.h` is what they find here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeGuard

import torch

from ..autotune import Choice
from ..silu_mul import LANES
from .float32_tiles import CODES_OF_KINDS, WIDTH, TiledWeight
from .linear import PAIRS, DenseWeight, LinearWeight
from .quantized_linear import BitsWeight

NUMBERS: Final = 9
"""Of a product in C."""


Product = DenseWeight | TiledWeight | BitsWeight


def knows_product(weight: LinearWeight, dtype: torch.dtype) -> TypeGuard[Product]:
    """Whether C can multiply rows of such a type by it, where its choice is our own loop."""
    if isinstance(weight, TiledWeight):
        return weight.dtype is dtype and not weight.size % LANES
    if isinstance(weight, DenseWeight):
        is_ours = weight.tiles is not None and weight.choice is not None
        return is_ours and weight.weight.dtype is dtype and not weight.weight.shape[1] % LANES
    if not isinstance(weight, BitsWeight) or weight.order is not None:
        return False
    knows_bias = weight.bias is None or weight.bias.dtype is dtype
    return knows_bias and not weight.size % LANES and not weight.group % LANES


def product_numbers(weight: Product) -> list[int]:
    """A weight that is known as C has it. The weight must outlive them."""
    bias = 0 if weight.bias is None else weight.bias.data_ptr()
    if isinstance(weight, BitsWeight):
        return [weight.packed.data_ptr(), bias, weight.size, weight.out, 0, 0, 0, weight.bits, weight.group]
    if isinstance(weight, TiledWeight):
        how = (CODES_OF_KINDS[weight.kind], WIDTH, weight.size)
        return [weight.memory.data_ptr(), bias, weight.size, weight.out, *how, 0, 0]
    assert weight.tiles is not None
    (out, size), tiles = weight.weight.shape, weight.tiles
    return [tiles.address, bias, size, out, PAIRS, tiles.width, tiles.depth, 0, 0]


def scratch_bytes(weights: Iterable[LinearWeight]) -> int:
    """Bytes for each row that any product of codes wants."""
    return max((each.scratch_bytes for each in weights if isinstance(each, BitsWeight)), default=0)


def choices_of(weights: Iterable[LinearWeight]) -> tuple[Choice, ...]:
    """That must be our own loop."""
    found = {each.choice for each in weights if isinstance(each, DenseWeight)}
    return tuple(choice for choice in found if choice is not None)
