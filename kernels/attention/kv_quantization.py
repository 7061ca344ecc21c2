"""Keys and values in 8 bits: each vector as whole numbers up to ±127 and a scale of its own.

A coded cache has torch.uint8 elements, and where another has [..., block_size, dim] it has
[..., block_size, dim + 2]: what a head keeps of a block is one record, first the numbers, then a bfloat16
scale for each position. Within a record keys lie as [block_size / 16, dim / 4, 16, 4] with 128 added, values
as [block_size / 4, dim, 4]: so `cpu/attend_codes.h` multiplies four bytes at a time. Here is the reference of
both directions; `kv_cache.py` chooses.

E4M3 would take as many bytes with three bits of mantissa where these have up to seven, and no CPU multiplies
it: there is nothing it would be better at.
"""

from __future__ import annotations

from typing import Final, Literal

import torch
from torch import Tensor

KvDtype = Literal["auto", "int8"]
"""How keys and values are kept: in the type the model computes in, or coded."""
CODED: Final = torch.uint8
"""The type of a coded cache's elements, which no other cache has."""
MULTIPLE: Final = 16
"""Of which block sizes and head sizes of a coded cache are multiples."""
_LARGEST: Final = 127
_MIDDLE: Final = 128
_SCALE_BYTES: Final = 2


def stored_size(dim: int, dtype: torch.dtype) -> int:
    """Elements of `dtype` that a vector of `dim` numbers takes in a cache of it."""
    return dim + _SCALE_BYTES if dtype is CODED else dim


def head_size(cache: Tensor) -> int:
    """Numbers of a vector in a cache [..., block_size, size]."""
    return cache.shape[-1] - (_SCALE_BYTES if cache.dtype is CODED else 0)


def encode(x: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors [..., dim] → whole numbers int8 [..., dim] and scales bfloat16 [...].

    A scale is the 127th part of the largest number, rounded up. That of a vector which is not finite is NaN.
    """
    wide = x.float()
    most = wide.abs().amax(-1)
    finite = most.isfinite()
    bits = (most / _LARGEST).view(torch.int32)
    scale = ((bits + 0xFFFF) >> 16).to(torch.int16).view(torch.bfloat16)
    scale = torch.where(finite, scale, torch.nan)
    divisor = torch.where(scale > 0, scale.float(), 1.0)
    whole = (wide / divisor[..., None]).round()
    return torch.where(finite[..., None], whole, 0.0).to(torch.int8), scale


def _parts(cache: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Views of a cache [blocks, 2, heads, block_size, dim + 2], which is contiguous.

    Keys are [blocks, heads, block_size / 16, dim / 4, 16, 4], values [blocks, heads, block_size / 4, dim, 4],
    scales bfloat16 [blocks, 2, heads, block_size].
    """
    assert cache.is_contiguous(), "its bytes are written through views"
    blocks, _, heads, size, _ = cache.shape
    dim = head_size(cache)
    records = cache.flatten(3)
    codes, scales = records[..., : size * dim], records[..., size * dim :]
    keys = codes[:, 0].view(blocks, heads, size // 16, dim // 4, 16, 4)
    values = codes[:, 1].view(blocks, heads, size // 4, dim, 4)
    return keys, values, scales.view(torch.bfloat16)


def decode(cache: Tensor) -> Tensor:
    """What a cache [blocks, 2, heads, block_size, dim + 2] stands for, float32 [..., dim]."""
    keys, values, scales = _parts(cache)
    key = keys.transpose(3, 4).flatten(4).flatten(2, 3).float() - _MIDDLE
    value = values.view(torch.int8).transpose(3, 4).flatten(2, 3).float()
    return torch.stack((key, value), 1) * scales[..., None].float()


def codes_between(cache: Tensor, first: int, last: int) -> Tensor:
    """A copy of positions `first`, a multiple of 16, to `last`, rounded up to one, of every block of a cache
    [blocks, 2, heads, block_size, dim + 2]."""
    blocks, two, heads, size, width = cache.shape
    last = min(size, -(-last // MULTIPLE) * MULTIPLE)
    copy = cache.new_empty((blocks, two, heads, last - first, width))
    keys, values, scales = _parts(cache)
    some_keys, some_values, some_scales = _parts(copy)
    some_keys.copy_(keys[:, :, first // 16 : last // 16])
    some_values.copy_(values[:, :, first // 4 : last // 4])
    some_scales.copy_(scales[..., first:last])
    return copy


def write_codes(cache: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    """`kv_cache.write_kv` into a coded cache, in plain torch."""
    keys, values, scales = _parts(cache)
    size = cache.shape[3]
    blocks, offsets = torch.div(slots, size, rounding_mode="floor"), slots % size
    for kind, x in enumerate((key, value)):
        codes, scale = encode(x)
        scales[blocks, kind, :, offsets] = scale
        if kind == 0:
            rows = (codes.int() + _MIDDLE).to(CODED)
            rows = rows.view(*rows.shape[:2], -1, 4)
            keys[blocks, :, offsets // 16, :, offsets % 16] = rows
        else:
            values[blocks, :, offsets // 4, :, offsets % 4] = codes.view(CODED)
