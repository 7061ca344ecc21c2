"""y = activation(x Wᵀ + b) (+ residual) by our own loop (`cpu/linear.c`) over a weight in tiles of our own.

For float32, and for bfloat16 where oneDNN packs none. Of a weight whose numbers are all bfloat16, or all
float16, as most published ones are, those 16 bits are kept: half as much is read for every step, the sums
are the same, and nothing is lost. An output is one sum from the first input to the last: it does not depend
on how many rows there are, nor on a processor that multiplies and adds at once. Read `linear.py` first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ..activation import Activation, code_of
from ..host_memory import use_large_pages
from ..native import CODES, Native, native_for
from ..silu_mul import LANES
from .fused_input import AS_IT_IS, Before, native_input, prepared

WIDTH: Final = 64
_ROWS_AT_ONCE: Final = 4096
"""Of a weight, looked at together."""

Kind = Literal["floats", "pairs", "halves"]
"""How numbers lie in a tile: float32 [in, 64], bfloat16 [in / 2, 64, 2], float16 [in / 2, 4, 2, 16]."""
CODES_OF_KINDS: Final[dict[Kind, int]] = {"floats": 0, "pairs": 2, "halves": 3}


@dataclass(frozen=True, slots=True, eq=False)
class TiledWeight:
    """A weight [out, size] for rows of `dtype`: tiles of 64 outputs, one behind the other, filled up with
    zeros."""

    memory: Tensor
    bias: Tensor | None
    out: int
    size: int
    kind: Kind
    dtype: torch.dtype


def tile_linear(weight: Tensor, bias: Tensor | None) -> TiledWeight | None:
    """A weight [out, in] and bias [out], float32 or bfloat16, for `linear_tiled`; None where no loop of ours
    takes it."""
    out, size = weight.shape
    if native_for(weight) is None or not weight.numel() or (weight.dtype is torch.bfloat16 and size % 2):
        return None
    assert bias is None or bias.dtype is weight.dtype, "one type for all"
    kind = _kind_of(weight)
    memory = _tiled(weight, kind)
    use_large_pages(memory.data_ptr(), memory.nbytes)
    return TiledWeight(memory, None if bias is None else bias.contiguous(), out, size, kind, weight.dtype)


def _kind_of(weight: Tensor) -> Kind:
    if weight.dtype is torch.bfloat16:
        return "pairs"
    if weight.shape[1] % 2:
        return "floats"
    if _holds(weight, torch.bfloat16):
        return "pairs"
    return "halves" if _holds(weight, torch.float16) else "floats"


def _holds(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether all numbers are finite and of a smaller type."""
    for part in torch.split(weight, _ROWS_AT_ONCE):
        narrow = part.to(dtype)
        if not torch.equal(narrow.float(), part) or not narrow.isfinite().all():
            return False
    return True


def _tiled(weight: Tensor, kind: Kind) -> Tensor:
    if kind != "floats":
        weight = weight.to(torch.bfloat16 if kind == "pairs" else torch.float16)
    weight = F.pad(weight, (0, 0, 0, -weight.shape[0] % WIDTH)).contiguous()
    size = weight.shape[1]
    if kind == "floats":
        return weight.view(-1, WIDTH, size).transpose(1, 2).contiguous()
    if kind == "pairs":
        return weight.view(-1, WIDTH, size // 2, 2).transpose(1, 2).contiguous()
    lines = weight.view(-1, WIDTH // LANES, LANES, size // 2, 2)
    return lines.permute(0, 3, 1, 4, 2).contiguous()


def untiled(weight: TiledWeight) -> Tensor:
    """The weight [out, size] that was tiled, in its rows' dtype: the numbers are the same."""
    memory = weight.memory
    dense = memory.permute(0, 2, 4, 1, 3) if weight.kind == "halves" else memory.transpose(1, 2)
    return dense.reshape(-1, weight.size)[: weight.out].to(weight.dtype)


def linear_tiled(
    x: Tensor,
    weight: TiledWeight,
    *,
    activation: Activation = "none",
    residual: Tensor | None = None,
    before: Before | None = None,
) -> Tensor:
    """As `linear`. Raises RuntimeError for rows of another type or size."""
    native = _native(x, weight)
    along = AS_IT_IS if before is None else native_input(x, before, weight.size)
    if along is None:
        x, along = prepared(x, before), AS_IT_IS
    if x.ndim != 2 or (not along.how and x.shape[1] != weight.size):
        raise RuntimeError(f"rows {list(x.shape)} do not fit a weight of {weight.size} inputs")
    if x.stride(1) != 1:
        x = x.contiguous()
    if residual is not None:
        assert residual.dtype is x.dtype, "one type for all"
        residual = residual.contiguous()
    y = torch.empty((x.shape[0], weight.out), dtype=x.dtype)
    native.linear(
        CODES_OF_KINDS[weight.kind],
        CODES[x.dtype],
        x.data_ptr(),
        x.stride(0),
        weight.memory.data_ptr(),
        None if weight.bias is None else weight.bias.data_ptr(),
        None if residual is None else residual.data_ptr(),
        y.data_ptr(),
        x.shape[0],
        weight.size,
        weight.out,
        WIDTH,
        weight.size,
        code_of(activation),
        *along,
        torch.get_num_threads(),
    )
    return y


def tiled_planes(x: Tensor, weight: TiledWeight, out: Tensor) -> None:
    """As `linear_planes`, of planes of 64. Raises RuntimeError for rows and planes that do not fit."""
    native = _native(x, weight)
    planes, rows, width = out.shape
    if (planes * width, x.shape[1], rows) != (weight.out, weight.size, x.shape[0]):
        raise RuntimeError(f"rows {list(x.shape)} and planes {list(out.shape)} do not fit the weight")
    assert out.is_contiguous()
    if x.stride(1) != 1:
        x = x.contiguous()
    bias = None if weight.bias is None else weight.bias.data_ptr()
    native.linear_planes(
        *(CODES_OF_KINDS[weight.kind], CODES[x.dtype]),
        *(x.data_ptr(), x.stride(0), weight.memory.data_ptr(), bias, out.data_ptr()),
        *(rows, weight.size, weight.out, weight.size, torch.get_num_threads()),
    )


def _native(x: Tensor, weight: TiledWeight) -> Native:
    native = native_for(x)
    if native is None or x.dtype is not weight.dtype:
        raise RuntimeError(f"rows of {x.dtype} on {x.device} for a weight of {weight.dtype} on the CPU")
    return native
