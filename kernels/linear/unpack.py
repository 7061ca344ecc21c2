"""Weights as published checkpoints pack them, turned into our codes or into numbers.

A function a packing: GPTQ's, AWQ's, and those of compressed-tensors; floats of 8 and of 4 bits, and those of
bitsandbytes, become plain numbers, since no product here takes them. What tensors of a checkpoint are which
is `engine/models/quantization_config.py`'s business. Knows tensors only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from .weight_codes import Codes, NumBits

GROUP: Final = 128
"""Scales of longer groups are repeated, so that inputs are rounded as finely as for our own codes."""
_AWQ_ORDER: Final = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which four bits of a word hold each of its eight outputs."""
_FLOAT4: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Of one bit for the sign, two for the exponent and one more."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The codes of a weight; their input i is the weight's input `order[i]` (int64 [in]) if there is one."""

    codes: Codes
    order: Tensor | None = None

    def weight(self) -> Tensor:
        """What they stand for, float32 [out, in]."""
        weight = self.codes.weight()
        return weight if self.order is None else torch.empty_like(weight).index_copy_(1, self.order, weight)


def unpack_words(words: Tensor, bits: NumBits) -> Tensor:
    """int32 [..., words] → uint8 [..., words · 32 / bits], the lowest bits first."""
    each = words.contiguous().view(torch.uint8)
    return each if bits == 8 else torch.stack((each & 15, each >> 4), -1).flatten(-2)


def unpack_gptq(
    qweight: Tensor, qzeros: Tensor, scales: Tensor, g_idx: Tensor | None, *, offset: int
) -> Unpacked:
    """qweight int32 [in · bits / 32, out], qzeros int32 [groups, out · bits / 32], scales [groups, out].

    `g_idx` int32 [in] says each input's group; zero points are stored less `offset`. Raises ValueError if the
    groups are not of one size.
    """
    out = scales.shape[1]
    bits = _num_bits(32 * qzeros.shape[1], out)
    values = unpack_words(qweight.t(), bits)
    zeros = unpack_words(qzeros, bits) + offset
    return _in_order(values, scales.t(), zeros.t(), bits, g_idx)


def unpack_awq(qweight: Tensor, qzeros: Tensor, scales: Tensor) -> Unpacked:
    """qweight int32 [in, out / 8], qzeros int32 [groups, out / 8], scales [groups, out]; of 4 bits."""
    values, zeros = (
        unpack_words(each, 4).view(each.shape[0], -1, 8)[:, :, _AWQ_ORDER].flatten(1)
        for each in (qweight, qzeros)
    )
    return _in_order(values.t(), scales.t(), zeros.t(), 4, None)


def unpack_integers(
    weight: Tensor, scale: Tensor, zero: Tensor | None, g_idx: Tensor | None, *, size: int, bits: NumBits
) -> Unpacked:
    """compressed-tensors' whole numbers: weight int8 [out, in], or int32 [out, words] of packed ones.

    scale [], [1], [out] or [out, groups]; zero like scale, or packed along its outputs; `g_idx` as GPTQ's.
    """
    out = weight.shape[0]
    scales = scale.reshape(-1, 1) if scale.ndim < 2 else scale
    scales = scales.expand(out, -1)
    is_packed = weight.dtype is torch.int32
    values = unpack_words(weight, bits)[:, :size] if is_packed else _from_signed(weight)
    if zero is None:
        zeros = torch.full(scales.shape, 1 << (bits - 1), dtype=torch.uint8)
    elif zero.dtype is torch.int32:
        zeros = unpack_words(zero.t(), bits)[:, :out].t()
    else:
        zeros = _from_signed(zero.reshape(-1, 1) if zero.ndim < 2 else zero).expand(scales.shape)
    return _in_order(values, scales, zeros, bits, g_idx)


def unpack_float8(weight: Tensor, scale: Tensor, block: tuple[int, int] | None) -> Tensor:
    """weight float8 [out, in] times scale [], [1], [out], [out, 1] or one a `block` → float32 [out, in]."""
    wide = weight.float()
    if block is None or scale.numel() == 1 or scale.shape in ((wide.shape[0],), (wide.shape[0], 1)):
        return wide * scale.float().reshape(-1, 1)
    high, across = min(block[0], wide.shape[0]), min(block[1], wide.shape[1])
    spread = scale.float().repeat_interleave(high, 0)[: wide.shape[0]]
    return wide * spread.repeat_interleave(across, 1)[:, : wide.shape[1]]


def unpack_float4(weight: Tensor, scale: Tensor, whole: Tensor | None) -> Tensor:
    """weight uint8 [out, in / 2], two numbers a byte, scale [out, groups] → float32 [out, in].

    A scale of whole numbers is an exponent of two (MXFP4); others are divided by `whole` [1] (NVFP4).
    """
    both = torch.stack((weight & 15, weight >> 4), -1).flatten(-2)
    numbers = torch.tensor((*_FLOAT4, *(-each for each in _FLOAT4)))[both.int()]
    if scale.dtype is torch.uint8:
        factors = torch.exp2(scale.float() - 127.0)
    else:
        factors = scale.float() / (1.0 if whole is None else whole.float())
    return numbers * factors.repeat_interleave(numbers.shape[1] // scale.shape[1], 1)


def unpack_mxfp4_experts(blocks: Tensor, scales: Tensor) -> Tensor:
    """blocks uint8 [experts, out, in / 32, 16], two numbers a byte, scales uint8 [experts, out, in / 32] →
    bfloat16 [experts, in, out], in which they are exact."""
    numbers = torch.tensor((*_FLOAT4, *(-each for each in _FLOAT4)), dtype=torch.bfloat16)
    made = torch.empty(blocks.shape[0], blocks.shape[2] * 32, blocks.shape[1], dtype=torch.bfloat16)
    for expert, (own, exponents) in enumerate(zip(blocks, scales, strict=True)):
        codes = torch.stack((own & 15, own >> 4), -1).flatten(-2)
        factors = torch.exp2(exponents.float() - 127.0)
        made[expert] = (numbers[codes.int()] * factors[..., None]).flatten(1).t()
    return made


def unpack_nf4(
    weight: Tensor, largest: Tensor, table: Tensor, *, block: int, shape: tuple[int, ...]
) -> Tensor:
    """weight uint8 [numbers / 2] of places in `table` [16], times their block's largest → float32 `shape`."""
    flat = weight.flatten()
    places = torch.stack((flat >> 4, flat & 15), -1).flatten()
    factors = largest.float().repeat_interleave(block)[: places.shape[0]]
    return (table.float()[places.int()] * factors).view(shape)


def _num_bits(stored: int, out: int) -> NumBits:
    if stored not in (4 * out, 8 * out):
        raise ValueError(f"{stored} bits of zero points do not fit {out} outputs")
    return 4 if stored == 4 * out else 8


def _from_signed(values: Tensor) -> Tensor:
    return (values.to(torch.int16) + 128).to(torch.uint8)


def _in_order(values: Tensor, scales: Tensor, zeros: Tensor, bits: NumBits, g_idx: Tensor | None) -> Unpacked:
    """Bring inputs of one group together, where they are not."""
    size, groups = values.shape[1], scales.shape[1]
    group, order = -(-size // groups), None
    if g_idx is not None and groups > 1:
        least, most = torch.aminmax(g_idx)
        fits = int(least) >= 0 and int(most) < groups  # else counting would take memory for each up to it
        if not fits or not bool((torch.bincount(g_idx.long(), minlength=groups) == group).all()):
            raise ValueError(f"g_idx does not put {group} inputs into each of {groups} groups")
        if not torch.equal(g_idx.long(), torch.arange(size) // group):
            order = torch.argsort(g_idx, stable=True)
            values = values[:, order]
    if group > GROUP and (groups == 1 or group % GROUP == 0):
        times = -(-group // GROUP)
        scales, zeros = (each.repeat_interleave(times, 1) for each in (scales, zeros))
        group = GROUP
    codes = Codes(bits, group, values.contiguous(), scales.float().contiguous(), zeros.contiguous())
    return Unpacked(codes, order)
