"""y = activation(x Wᵀ + b) (+ residual), with weights laid out once for the device.

On CPUs `F.linear` reorders or streams badly for the few rows of a decode step; oneDNN's inner product over a
weight packed beforehand is up to twice as fast in bfloat16 and float32, and fuses what follows. For up to
`MAX_NATIVE_ROWS` rows our own loop (`cpu/linear.c`) over the same packed memory is faster again, since it
reads at the rate of the memory, and a row's result does not depend on how many there are.
`examples/benchmarks/bench_kernels.py` compares them. `linear_reference` is the plain meaning. Knows tensors
only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .native import CODES, native_for

Activation = Literal["none", "gelu", "gelu_tanh", "relu"]

MAX_NATIVE_ROWS = 64
"""Rows up to which weights are better streamed by our own loop than by oneDNN's product."""
_TILE = 64  # outputs that lie together in oneDNN's layout

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
class LinearWeight:
    """A weight [out, in] ready for `linear`; `packed` if it is in oneDNN's own layout (then the only copy).

    `tiles` is where the packed memory lies if it has the layout `cpu/linear.c` reads, else 0.
    """

    weight: Tensor
    bias: Tensor | None
    packed: bool
    tiles: int = 0


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN can hold this weight in its own layout."""
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):  # not a public operator
        return False
    if weight.dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype is torch.float32


def pack_linear(weight: Tensor, bias: Tensor | None = None) -> LinearWeight:
    """Prepare a weight [out, in] and bias [out] for many calls of `linear`."""
    if can_pack(weight):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        return LinearWeight(packed, bias, packed=True, tiles=_find_tiles(packed, weight.contiguous()))
    return LinearWeight(weight.contiguous(), bias, packed=False)


def _find_tiles(packed: Tensor, weight: Tensor) -> int:
    """Address of the packed memory if its tiles are [in/2, 64, 2] (float32: [in, 64]), else 0.

    oneDNN chooses layouts as it likes (another one for bfloat16 where the processor has AMX), so what it
    chose is compared, not assumed: in the first tile, the last, and one that is surely not all zeros.
    """
    operators = torch.ops.mkldnn
    out, size = weight.shape
    num_tiles, pair = -(-out // _TILE), 4 // weight.itemsize
    if native_for(weight) is None or not hasattr(operators, "data_ptr") or not hasattr(operators, "_nbytes"):
        return 0
    tile_bytes = _TILE * size * weight.itemsize
    if not out or size % pair or operators._nbytes(packed) != num_tiles * tile_bytes:
        return 0
    address = int(operators.data_ptr(packed))
    most = int(torch.linalg.vector_norm(weight, ord=torch.inf, dim=1).argmax())
    for number in {0, most // _TILE, num_tiles - 1}:
        rows = weight[number * _TILE : (number + 1) * _TILE]
        expected = rows.view(-1, size // pair, pair).transpose(0, 1)
        memory = (ctypes.c_char * tile_bytes).from_address(address + number * tile_bytes)
        found = torch.frombuffer(memory, dtype=weight.dtype).view(size // pair, _TILE, pair)
        if not torch.equal(found[:, : rows.shape[0]], expected):
            return 0
    return address


def linear(
    x: Tensor, weight: LinearWeight, *, activation: Activation = "none", residual: Tensor | None = None
) -> Tensor:
    """x [rows, in] → [rows, out]; `residual` [rows, out] is added last and excludes an activation."""
    if not weight.packed:
        return linear_reference(x, weight.weight, weight.bias, activation=activation, residual=residual)
    known = x.shape[1] == weight.weight.shape[1] and x.dtype is weight.weight.dtype
    if weight.tiles and known and 0 < x.shape[0] <= MAX_NATIVE_ROWS:
        y = _linear_native(x, weight, residual)
        return y if activation == "none" else _FUNCTIONS[activation](y)
    pointwise = torch.ops.mkldnn._linear_pointwise
    if residual is not None:
        return cast(Tensor, pointwise.binary(x, residual, weight.weight, weight.bias, "add"))
    function, variant = _FUSED[activation]
    return cast(Tensor, pointwise(x, weight.weight, weight.bias, function, [], variant))


def _linear_native(x: Tensor, weight: LinearWeight, residual: Tensor | None) -> Tensor:
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
        weight.tiles,
        None if weight.bias is None else weight.bias.data_ptr(),
        None if residual is None else residual.data_ptr(),
        y.data_ptr(),
        rows,
        size,
        out,
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
