"""y = x Wᵀ + b (+ residual) with a weight of 8 or 4 bits (`weight_codes.py`): whole numbers, multiplied
exactly.

Each row's inputs are rounded to whole numbers when they come: a group of them is divided by its largest
magnitude / 127. For each group the sum of (code − zero) · input is exact in 32 bits; it becomes a float32,
is multiplied by the weight's scale, then by the row's, and added to the groups before it; last come bias and
residual, and one rounding to the type of x. Nothing in that depends on the processor or on how many rows
there are, so our loop (`cpu/linear_bits.c`: AMX, VNNI, AVX2 or none) and `linear_bits_reference` agree to the
last bit. Inputs that are not finite make a row's results NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ..host_memory import use_large_pages
from ..native import CODES, native_for
from ..silu_mul import LANES
from .fused_input import AS_IT_IS, Before, NativeInput, native_input, prepared
from .weight_codes import Codes, Grid, NumBits, quantize

MAX_GROUP: Final = 65_536
"""Inputs up to which the sum of a group fits into 32 bits, whatever the numbers."""
_WIDTH: Final = 64
_ROWS_OF_A_TILE: Final = 16
_ROWS_AT_ONCE: Final = 1024
"""Rounded together, so that a large weight has no second copy in float32."""
_SMALLEST: Final = 1e-30
_LARGEST: Final = 127.0


@dataclass(frozen=True, slots=True)
class BitsWeight:
    """A weight [out, size] ready for `linear_bits`, and a bias [out].

    `packed` is uint8 [out / 64, groups, bytes], as `cpu/linear_bits.c` describes it; filled up with zeros.
    """

    packed: Tensor
    bias: Tensor | None
    out: int
    size: int
    bits: NumBits
    group: int
    order: Tensor | None = None
    """Which of a row's inputs is the first of the weight's, and so on, if they lie in another order: int64
    [size]."""

    @property
    def nbytes(self) -> int:
        """Bytes held, bias included."""
        return self.packed.nbytes + (0 if self.bias is None else self.bias.nbytes)

    @property
    def scratch_bytes(self) -> int:
        """What our loop wants for each row it rounds, of which there is room for `whole_tiles`."""
        return self.packed.shape[1] * (self.group + 8)

    def rows(self, ids: Tensor) -> Tensor:
        """Some outputs' weights: ids [...] → float32 [..., size]."""
        assert self.order is None, "nobody looks up what is in another order"
        codes = _codes_of(self, ids.flatten())
        return codes.weight().view(*ids.shape, self.size)


def whole_tiles(rows: int) -> int:
    """So many rows or more: as a processor's registers of tiles hold them."""
    return -(-rows // _ROWS_OF_A_TILE) * _ROWS_OF_A_TILE


def num_packed_bytes(out: int, size: int, grid: Grid) -> int:
    """Bytes of a packed weight [out, size]."""
    group = _whole(grid.group or size)
    return -(-out // _WIDTH) * -(-size // group) * (group * _WIDTH * grid.bits // 8 + 5 * _WIDTH)


def quantize_linear(weight: Tensor, bias: Tensor | None, grid: Grid) -> BitsWeight:
    """Round a weight [out, in] of any float type to codes, and pack them."""
    out, size = weight.shape
    parts = (quantize(weight[i : i + _ROWS_AT_ONCE], grid) for i in range(0, out, _ROWS_AT_ONCE))
    return _pack(parts, out, size, grid, bias)


def pack_codes(codes: Codes, bias: Tensor | None = None, order: Tensor | None = None) -> BitsWeight:
    """Codes somebody else rounded, for inputs in the order given."""
    out, size = codes.values.shape
    packed = _pack((codes,), out, size, Grid(codes.bits, codes.group), bias)
    return replace(packed, order=order)


def _whole(group: int) -> int:
    """Inputs are read four at a time."""
    return -(-group // 4) * 4


def _pack(parts: Iterable[Codes], out: int, size: int, grid: Grid, bias: Tensor | None) -> BitsWeight:
    given = grid.group or size
    group = _whole(given)
    assert group == given or given >= size, "only a single group may have any number of inputs"
    if group > MAX_GROUP:
        raise ValueError(f"a group of {group} inputs is too large; allowed: up to {MAX_GROUP}")
    tiles, groups = -(-out // _WIDTH), -(-size // group)
    weights = group * _WIDTH * grid.bits // 8
    packed = torch.zeros((tiles, groups, weights + 5 * _WIDTH), dtype=torch.uint8)
    first = 0
    for part in parts:
        rows = part.values.shape[0]
        into = packed[first // _WIDTH : -(-(first + rows) // _WIDTH)]
        padding = (0, groups * group - size, 0, -rows % _WIDTH)
        values = F.pad(part.values, padding).view(-1, 4, 16, groups, group // 4, 4)
        values = values.permute(0, 3, 4, 1, 2, 5)  # tile, group, four inputs, four times, 16 outputs, inputs
        if grid.bits == 4:
            values = values[:, :, :, 0::2] | values[:, :, :, 1::2] << 4
        into[:, :, :weights] = values.reshape(into.shape[0], groups, weights)
        for tensor, begin in ((part.scales, weights), (part.zeros, weights + 4 * _WIDTH)):
            tiled = F.pad(tensor, (0, 0, 0, -rows % _WIDTH)).view(-1, _WIDTH, groups).transpose(1, 2)
            as_bytes = tiled.contiguous().view(torch.uint8)
            into[:, :, begin : begin + as_bytes.shape[2]] = as_bytes
        first += rows
        assert not rows % _WIDTH or first == out, "parts are whole tiles"
    use_large_pages(packed.data_ptr(), packed.nbytes)
    return BitsWeight(packed, bias, out, size, grid.bits, group)


def _codes_of(weight: BitsWeight, ids: Tensor) -> Codes:
    """The codes of some outputs again, int64 [n]; groups filled up."""
    groups, group, bits = weight.packed.shape[1], weight.group, weight.bits
    tile, lane = ids // _WIDTH, ids % _WIDTH
    num_bytes = group * _WIDTH * bits // 8
    tail = weight.packed[:, :, num_bytes:]
    floats = tail[:, :, : 4 * _WIDTH].view(torch.float32)
    scales, zeros = floats[tile, :, lane], tail[:, :, 4 * _WIDTH :][tile, :, lane]
    shape = (-1, groups, group // 4, 4 * bits // 8, 16, 4)
    steps = weight.packed[:, :, :num_bytes].view(shape)
    quarter = lane // 16
    if bits == 8:
        values = steps[tile, :, :, quarter, lane % 16]
    else:
        both = steps[tile, :, :, quarter // 2, lane % 16]
        values = torch.where((quarter % 2 == 1)[:, None, None, None], both >> 4, both & 15)
    flat = values.reshape(ids.shape[0], groups * group)[:, : weight.size]
    return Codes(bits, group, flat, scales, zeros)


def linear_bits(
    x: Tensor, weight: BitsWeight, *, residual: Tensor | None = None, before: Before | None = None
) -> Tensor:
    """x [rows, in], float32 or bfloat16, or what becomes such rows by `before` → [rows, out]; `residual`
    [rows, out] is added."""
    if before is not None and weight.order is None and weight.group % LANES == 0:
        native, along = native_for(x), native_input(x, before, weight.size)
        if native is not None and along is not None:
            return linear_bits_native(native.linear_bits, x, weight, residual, along)
    x = prepared(x, before)
    if x.ndim != 2 or x.shape[1] != weight.size:
        raise RuntimeError(f"rows {list(x.shape)} do not fit a weight of {weight.size} inputs")
    if weight.order is not None:
        x = x.index_select(1, weight.order)
    native = native_for(x)
    if native is None:
        return linear_bits_reference(x, weight, residual=residual)
    return linear_bits_native(native.linear_bits, x, weight, residual)


def linear_bits_native(
    loop: Callable[..., int],
    x: Tensor,
    weight: BitsWeight,
    residual: Tensor | None,
    before: NativeInput = AS_IT_IS,
) -> Tensor:
    """The same by a build of our loop."""
    rows = x.shape[0]
    if x.stride(1) != 1:
        x = x.contiguous()
    if residual is not None:
        residual = residual.contiguous()
    bias = weight.bias
    assert all(each is None or each.dtype is x.dtype for each in (bias, residual)), "one type for all"
    y = torch.empty((rows, weight.out), dtype=x.dtype)
    scratch = torch.empty(whole_tiles(rows) * weight.scratch_bytes, dtype=torch.uint8)
    loop(
        CODES[x.dtype],
        weight.bits,
        x.data_ptr(),
        x.stride(0),
        weight.packed.data_ptr(),
        None if bias is None else bias.data_ptr(),
        None if residual is None else residual.data_ptr(),
        y.data_ptr(),
        rows,
        weight.size,
        weight.out,
        weight.group,
        *before,
        scratch.data_ptr(),
        torch.get_num_threads(),
    )
    return y


def round_inputs(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """x [rows, in] → whole numbers float64 [rows, groups, group], filled up with zeros, and the scales of
    their groups, float32 [rows, groups]."""
    rows, size = x.shape
    grouped = F.pad(x.float(), (0, -size % group)).view(rows, -(-size // group), group)
    largest = grouped.abs().amax(2)
    is_finite, is_some = torch.isfinite(largest), largest > _SMALLEST
    # A number divided by a tensor would be multiplied by its reciprocal.
    factors = torch.where(is_finite & is_some, torch.full_like(largest, _LARGEST) / largest, 0.0)
    whole = (grouped * factors[:, :, None]).round().double()
    whole = torch.where((is_finite & is_some)[:, :, None], whole, 0.0)
    scales = torch.where(is_some, largest / _LARGEST, 0.0)
    return whole, torch.where(is_finite, scales, torch.nan)


def linear_bits_reference(x: Tensor, weight: BitsWeight, *, residual: Tensor | None = None) -> Tensor:
    """The same in plain torch: sums of whole numbers in float64, which holds them exactly."""
    whole, scales = round_inputs(x, weight.group)
    y = torch.zeros((x.shape[0], weight.out), dtype=torch.float32)
    for first in range(0, weight.out, _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, weight.out)
        codes = _codes_of(weight, torch.arange(first, last))
        padding = (0, weight.group * codes.scales.shape[1] - weight.size)
        values = F.pad(codes.values, padding).view(last - first, -1, weight.group)
        for g in range(codes.scales.shape[1]):
            centred = values[:, g].double() - codes.zeros[:, g, None].double()
            part = (whole[:, g] @ centred.T).float() * codes.scales[:, g]
            y[:, first:last] += part * scales[:, g, None]
    for addend in (weight.bias, residual):
        if addend is not None:
            y += addend.float()
    return y.to(x.dtype)
