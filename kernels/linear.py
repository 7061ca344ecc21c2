"""y = activation(x Wᵀ + b) (+ residual), with weights laid out once for the device.

On CPUs `F.linear` reorders or streams badly for the few rows of a decode step; oneDNN's inner product over a
weight packed beforehand is up to twice as fast in bfloat16 and float32, and fuses what follows. For few rows
our own loop (`cpu/linear.c`) over the same packed memory is faster again, since it reads at the rate of the
memory: for up to 64, or 8 where oneDNN uses AMX, whose sums our loop repeats bit for bit. So a row's result
does not depend on how many there are, up to `NUM_ALIKE_ROWS`. Weights of fewer bits are `linear_bits.py`'s.
`examples/benchmarks/bench_kernels.py` compares them. `linear_reference` is the plain meaning. Knows tensors
only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .codes import Codes, Grid
from .linear_bits import BitsWeight, linear_bits, pack_codes, quantize_linear
from .native import CODES, native_for
from .unpack import Unpacked

Activation = Literal["none", "gelu", "gelu_tanh", "relu"]

MAX_NATIVE_ROWS = 64
"""Rows up to which weights are better streamed by our own loop than by oneDNN's product without AMX."""
NUM_ALIKE_ROWS = 32
"""Beside AMX, oneDNN sums long rows in parts when there are more."""
_AMX_ROWS = 8
"""The same beside AMX."""
_SMALL_AMX_ROWS = 16
"""And for weights so small that oneDNN's call costs more than its product."""
_SMALL = 1 << 17
_TILES = (64, 32)
"""Outputs that lie together in the layouts of oneDNN that our loop reads: without AMX, and with it."""
_DEPTH = 32  # where there is AMX, inputs are filled up to a multiple of this

_FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
_FUSED: dict[Activation, tuple[str, str]] = {
    "none": ("none", "none"),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", "none"),
}
"""What oneDNN calls them: a function and its variant."""


@dataclass(frozen=True, slots=True)
class DenseWeight:
    """A weight [out, in] ready for `linear`; `packed` if it is in oneDNN's own layout (then the only copy).

    `tiles` says how the packed memory lies if `cpu/linear.c` can read it.
    """

    weight: Tensor
    bias: Tensor | None
    packed: bool
    tiles: Tiles | None = None


@dataclass(frozen=True, slots=True)
class Tiles:
    """Packed memory at `address`: [out / width, depth / pair, width, pair] with pairs of bfloat16, or of one
    float32; outputs and inputs filled up with anything."""

    address: int
    width: int
    depth: int
    max_rows: int
    """Rows up to which our loop is the faster way."""


@dataclass(frozen=True, slots=True)
class PartedWeight:
    """Several weights for the same inputs, whose outputs follow each other, too unlike to be one."""

    parts: tuple[DenseWeight | BitsWeight, ...]


LinearWeight = DenseWeight | BitsWeight | PartedWeight
"""Whatever `linear` takes."""


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN can hold this weight in its own layout."""
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):  # not a public operator
        return False
    if weight.dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype is torch.float32


def pack_linear(weight: Tensor, bias: Tensor | None = None) -> DenseWeight:
    """Prepare a weight [out, in] and bias [out] for many calls of `linear`."""
    if can_pack(weight):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        return DenseWeight(packed, bias, packed=True, tiles=_find_tiles(packed, weight.contiguous()))
    return DenseWeight(weight.contiguous(), bias, packed=False)


def arrange_linear(weight: Tensor, bias: Tensor | None, grid: Grid | None) -> LinearWeight:
    """As `pack_linear`, or rounded to codes on a `grid` if there is one."""
    return pack_linear(weight, bias) if grid is None else quantize_linear(weight, bias, grid)


def arrange_parts(parts: Sequence[Unpacked | Tensor], bias: Tensor | None) -> LinearWeight:
    """Weights for the same inputs, some of them codes: one weight if the codes are alike."""
    first, *others = parts
    if isinstance(first, Unpacked) and all(_is_alike(first, each) for each in others):
        joined = [each.codes for each in parts if isinstance(each, Unpacked)]
        values, scales, zeros = (
            torch.cat([getattr(each, name) for each in joined]) for name in ("values", "scales", "zeros")
        )
        codes = Codes(first.codes.bits, first.codes.group, values, scales, zeros)
        return pack_codes(codes, bias, first.order)
    sizes = [(each.codes.values if isinstance(each, Unpacked) else each).shape[0] for each in parts]
    biases = [None] * len(parts) if bias is None else [each.clone() for each in torch.split(bias, sizes)]
    return PartedWeight(
        tuple(
            pack_codes(each.codes, own, each.order) if isinstance(each, Unpacked) else pack_linear(each, own)
            for each, own in zip(parts, biases, strict=True)
        )
    )


def _is_alike(first: Unpacked, other: Unpacked | Tensor) -> bool:
    if isinstance(other, Tensor):
        return False
    mine, its = first.codes, other.codes
    orders = [each for each in (first.order, other.order) if each is not None]
    is_same_order = not orders or (len(orders) == 2 and torch.equal(*orders))
    return (mine.bits, mine.group) == (its.bits, its.group) and is_same_order


def _find_tiles(packed: Tensor, weight: Tensor) -> Tiles | None:
    """Which of the layouts that we read `packed` has, if any.

    oneDNN chooses as it likes, by processor, type and shape, so what it chose is compared, not assumed: in
    the first tile, the last, and one that is surely not all zeros.
    """
    operators = torch.ops.mkldnn
    size = weight.shape[1]
    if native_for(weight) is None or not hasattr(operators, "data_ptr") or not hasattr(operators, "_nbytes"):
        return None
    if not weight.numel() or size % (4 // weight.itemsize):
        return None
    address, num_bytes = int(operators.data_ptr(packed)), operators._nbytes(packed)
    for width in _TILES:
        for depth in {size, -(-size // _DEPTH) * _DEPTH}:
            tiles = Tiles(address, width, depth, _max_rows(weight, width))
            if num_bytes == _num_tiles(weight, tiles) * width * depth * weight.itemsize and _holds(
                tiles, weight
            ):
                return tiles
    return None


def _max_rows(weight: Tensor, width: int) -> int:
    if weight.dtype is torch.float32 or width == _TILES[0]:
        return MAX_NATIVE_ROWS
    return _SMALL_AMX_ROWS if weight.numel() <= _SMALL else _AMX_ROWS


def _num_tiles(weight: Tensor, tiles: Tiles) -> int:
    return -(-weight.shape[0] // tiles.width)


def _holds(tiles: Tiles, weight: Tensor) -> bool:
    size, width, pair = weight.shape[1], tiles.width, 4 // weight.itemsize
    most = int(torch.linalg.vector_norm(weight, ord=torch.inf, dim=1).argmax())
    for number in {0, most // width, _num_tiles(weight, tiles) - 1}:
        rows = weight[number * width : (number + 1) * width]
        expected = rows.view(-1, size // pair, pair).transpose(0, 1)
        found = tile_memory(tiles, number, weight.dtype)[: size // pair, : rows.shape[0]]
        if not torch.equal(found, expected):
            return False
    return True


def tile_memory(tiles: Tiles, number: int, dtype: torch.dtype) -> Tensor:
    """One tile as it lies there: [depth / pair, width, pair]. It must not outlive the weight."""
    pair = 4 // dtype.itemsize
    num_bytes = tiles.width * tiles.depth * dtype.itemsize
    memory = (ctypes.c_char * num_bytes).from_address(tiles.address + number * num_bytes)
    return torch.frombuffer(memory, dtype=dtype).view(tiles.depth // pair, tiles.width, pair)


def linear(
    x: Tensor, weight: LinearWeight, *, activation: Activation = "none", residual: Tensor | None = None
) -> Tensor:
    """x [rows, in] → [rows, out]; `residual` [rows, out] is added last and excludes an activation."""
    if isinstance(weight, PartedWeight):
        y = _FUNCTIONS[activation](torch.cat([linear(x, part) for part in weight.parts], 1))
        return y if residual is None else y + residual
    if isinstance(weight, BitsWeight):
        return _FUNCTIONS[activation](linear_bits(x, weight, residual=residual))
    if not weight.packed:
        return linear_reference(x, weight.weight, weight.bias, activation=activation, residual=residual)
    known = x.shape[1] == weight.weight.shape[1] and x.dtype is weight.weight.dtype
    is_few = weight.tiles is not None and known and 0 < x.shape[0] <= MAX_NATIVE_ROWS
    if is_few and activation != "none":  # not fused, so that both ways round alike
        return _FUNCTIONS[activation](linear(x, weight))
    if is_few and weight.tiles is not None and x.shape[0] <= weight.tiles.max_rows:
        return _linear_native(x, weight, weight.tiles, residual)
    pointwise = torch.ops.mkldnn._linear_pointwise
    if residual is not None:
        return cast(Tensor, pointwise.binary(x, residual, weight.weight, weight.bias, "add"))
    function, variant = _FUSED[activation]
    return cast(Tensor, pointwise(x, weight.weight, weight.bias, function, [], variant))


def _linear_native(x: Tensor, weight: DenseWeight, tiles: Tiles, residual: Tensor | None) -> Tensor:
    native = native_for(x)
    assert native is not None, "the weight has tiles"
    rows, size = x.shape
    out = weight.weight.shape[0]
    if x.stride(1) != 1 or x.stride(0) % 2:
        x = x.contiguous()
    if residual is not None:
        residual = residual.contiguous()
    y = torch.empty((rows, out), dtype=x.dtype)
    native.linear(
        CODES[x.dtype],
        x.data_ptr(),
        x.stride(0),
        tiles.address,
        None if weight.bias is None else weight.bias.data_ptr(),
        None if residual is None else residual.data_ptr(),
        y.data_ptr(),
        rows,
        size,
        out,
        tiles.width,
        tiles.depth,
        torch.get_num_threads(),
    )
    return y


def linear_reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    activation: Activation = "none",
    residual: Tensor | None = None,
) -> Tensor:
    """The same in plain torch, for any device and dtype."""
    y = _FUNCTIONS[activation](F.linear(x, weight, bias))
    return y if residual is None else y + residual
