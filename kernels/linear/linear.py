"""y = activation(x Wᵀ + b) (+ residual), with weights laid out once for the device.

On CPUs `F.linear` reorders or streams badly for the few rows of a decode step; oneDNN's inner product over a
weight packed beforehand is up to twice as fast, and fuses what follows. In bfloat16 our own loop
(`cpu/linear.c`) over the same packed memory is faster again for few rows, since it reads at the rate of the
memory: by default for up to 64, beside AMX by its tiles, whose sums are those of oneDNN bit for bit; for all
where the processor multiplies bfloat16 without AMX. There what is measured decides (`kernels/autotune.py`). A
row's result does not depend on how many there are, up to `NUM_ALIKE_ROWS`. float32, and bfloat16 where oneDNN
packs none, are our loop's, too (`float32_tiles.py`), weights of fewer bits `quantized_linear.py`'s.
`examples/benchmarks/bench_kernels.py` compares them. `linear_reference` is the plain meaning. Knows tensors
only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Final, cast
from weakref import WeakKeyDictionary, WeakSet

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ..activation import FUNCTIONS, Activation, activated, code_of
from ..autotune import Choice, Run, shared_choice
from ..native import CODES, native_for
from .float32_tiles import WIDTH, TiledWeight, linear_tiled, tile_linear, tiled_planes
from .fused_input import AS_IT_IS, MOST_ROWS, Before, NativeInput, native_input, prepared
from .onednn import TILES, Tiles, can_pack, find_tiles, packed_by_onednn
from .quantized_linear import BitsWeight, linear_bits, pack_codes, quantize_linear
from .row_adapters import add_changes, is_adapting
from .unpack import Unpacked
from .weight_codes import Codes, Grid

MAX_NATIVE_ROWS = MOST_ROWS
"""Rows that meet all weights together in our own loop."""
_MANY_ROWS = 512
"""Stands for all that are more."""
NUM_ALIKE_ROWS = 32
"""Beside AMX, oneDNN sums long rows in parts when there are more."""
_ROWS_WITHOUT_TILES = 8
"""Up to which our loop is the default where oneDNN uses AMX and it cannot."""
PAIRS: Final = 1
"""What our loop calls rows and weights of bfloat16 as oneDNN packs them."""
_FUSED: dict[Activation, tuple[str, str]] = {
    "none": ("none", "none"),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", "none"),
}
"""What oneDNN calls them: a function and its variant."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class DenseWeight:
    """A weight [out, in] ready for `linear`; `packed` if it is in oneDNN's own layout (then the only copy).

    `tiles` says how the packed memory lies if `cpu/linear.c` can read it; `choice` when it does.
    """

    weight: Tensor
    bias: Tensor | None
    packed: bool
    tiles: Tiles | None = None
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class PartedWeight:
    """Several weights for the same inputs, whose outputs follow each other, too unlike to be one."""

    parts: tuple[DenseWeight | TiledWeight | BitsWeight, ...]


PlainWeight = DenseWeight | TiledWeight | BitsWeight | PartedWeight
"""One that is the same for all rows."""


@dataclass(frozen=True, slots=True)
class AdaptedWeight:
    """A weight that adapters may change for some rows (`row_adapters.py`), made of the tensors `names`."""

    weight: PlainWeight
    names: tuple[str, ...]


LinearWeight = PlainWeight | AdaptedWeight
"""Whatever `linear` takes."""

_COMPOSED: Final = (PartedWeight, AdaptedWeight)


def pack_linear(weight: Tensor, bias: Tensor | None = None) -> DenseWeight | TiledWeight:
    """Prepare a weight [out, in] and bias [out] for many calls of `linear`."""
    is_packed = can_pack(weight)
    if weight.dtype is torch.float32 or not is_packed:
        tiled = tile_linear(weight, bias)
        if tiled is not None:
            return tiled
    if is_packed:
        packed = packed_by_onednn(weight)
        tiles = find_tiles(packed, weight.contiguous())
        if tiles is None:
            return DenseWeight(packed, bias, packed=True)
        choice = _choice_for(weight, tiles)
        made = DenseWeight(packed, bias, packed=True, tiles=tiles, choice=choice)
        _weights_of[choice].add(made)
        return made
    return DenseWeight(weight.contiguous(), bias, packed=False)


def arrange_linear(weight: Tensor, bias: Tensor | None, grid: Grid | None) -> PlainWeight:
    """As `pack_linear`, or rounded to codes on a `grid` if there is one."""
    return pack_linear(weight, bias) if grid is None else quantize_linear(weight, bias, grid)


def arrange_parts(parts: Sequence[Unpacked | Tensor], bias: Tensor | None) -> PlainWeight:
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


def linear(
    x: Tensor,
    weight: LinearWeight,
    *,
    activation: Activation = "none",
    residual: Tensor | None = None,
    before: Before | None = None,
) -> Tensor:
    """x [rows, in], or what becomes such rows by `before` → [rows, out]; `residual` [rows, out] is added last
    and excludes an activation."""
    if isinstance(weight, _COMPOSED):
        if isinstance(weight, AdaptedWeight) and not is_adapting():
            return linear(x, weight.weight, activation=activation, residual=residual, before=before)
        y = activated(_composed(prepared(x, before), weight), activation)
        return y if residual is None else y + residual
    if isinstance(weight, BitsWeight):
        return activated(linear_bits(x, weight, residual=residual, before=before), activation)
    if isinstance(weight, TiledWeight):
        return linear_tiled(x, weight, activation=activation, residual=residual, before=before)
    is_c = _is_ours(x, weight)
    along = native_input(x, before, weight.weight.shape[1]) if is_c and before is not None else AS_IT_IS
    if before is not None and (not is_c or along is None):
        x, along = prepared(x, before), AS_IT_IS
    if is_c and along is not None and (along.how or x.shape[1] == weight.weight.shape[1]):
        return _linear_c(x, weight, residual, along, activation)
    if not weight.packed:
        return linear_reference(x, weight.weight, weight.bias, activation=activation, residual=residual)
    if weight.tiles is not None and 0 < x.shape[0] <= MAX_NATIVE_ROWS:
        # Not fused, so that both ways for few rows round alike.
        return activated(_linear_onednn(x, weight, residual), activation)
    return _linear_onednn(x, weight, residual, activation)


def _composed(x: Tensor, weight: PartedWeight | AdaptedWeight) -> Tensor:
    if isinstance(weight, PartedWeight):
        return torch.cat([linear(x, part) for part in weight.parts], 1)
    y = linear(x, weight.weight)
    add_changes(y, x, weight.names)
    return y


def linear_planes(x: Tensor, weight: LinearWeight, out: Tensor) -> None:
    """x Wᵀ + b of x [rows, in] to `out` [planes, rows, size] of x's type, contiguous: a plane has the next
    `size` outputs, as heads of keys and values are kept."""
    planes, rows, size = out.shape
    if isinstance(weight, TiledWeight) and x.dtype is out.dtype and size == WIDTH:
        tiled_planes(x, weight, out)
        return
    if isinstance(weight, DenseWeight) and x.dtype is out.dtype is torch.bfloat16 and _is_ours(x, weight):
        tiles = weight.tiles
        if tiles is not None and tiles.width == size == TILES[0]:
            _planes_c(x, weight, tiles, out)
            return
    out.copy_(linear(x, weight).view(rows, planes, size).transpose(0, 1))


def _is_ours(x: Tensor, weight: DenseWeight) -> bool:
    """Whether our own loop takes these rows, by the choice."""
    rows, tiles, choice = x.shape[0], weight.tiles, weight.choice
    if tiles is None or choice is None or x.dtype is not weight.weight.dtype:
        return False
    return tiles.take(rows) and choice.at(rows) == "c"


def _planes_c(x: Tensor, weight: DenseWeight, tiles: Tiles, out: Tensor) -> None:
    native, size = native_for(x), x.shape[1]
    assert native is not None, "the weight has tiles"
    assert out.is_contiguous()
    if (out.shape[0] * tiles.width, size) != tuple(weight.weight.shape) or out.shape[1] != x.shape[0]:
        raise RuntimeError(f"rows {list(x.shape)} and planes {list(out.shape)} do not fit the weight")
    if x.stride(1) != 1 or x.stride(0) % 2:
        x = x.contiguous()
    bias = None if weight.bias is None else weight.bias.data_ptr()
    native.linear_planes(
        *(PAIRS, CODES[x.dtype]),
        *(x.data_ptr(), x.stride(0), tiles.address, bias, out.data_ptr()),
        *(x.shape[0], size, weight.weight.shape[0], tiles.depth, torch.get_num_threads()),
    )


def _linear_onednn(
    x: Tensor, weight: DenseWeight, residual: Tensor | None, activation: Activation = "none"
) -> Tensor:
    pointwise = torch.ops.mkldnn._linear_pointwise
    if residual is not None:
        return cast(Tensor, pointwise.binary(x, residual, weight.weight, weight.bias, "add"))
    function, variant = _FUSED[activation]
    return cast(Tensor, pointwise(x, weight.weight, weight.bias, function, [], variant))


def _linear_c(
    x: Tensor,
    weight: DenseWeight,
    residual: Tensor | None,
    before: NativeInput = AS_IT_IS,
    activation: Activation = "none",
) -> Tensor:
    native, tiles = native_for(x), weight.tiles
    assert native is not None, "the weight has tiles"
    assert tiles is not None
    assert tiles.take(x.shape[0]), "rows"
    rows, (out, size) = x.shape[0], weight.weight.shape
    if x.stride(1) != 1 or x.stride(0) % 2:
        x = x.contiguous()
    if residual is not None:
        residual = residual.contiguous()
    y = torch.empty((rows, out), dtype=x.dtype)
    native.linear(
        PAIRS,
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
        code_of(activation),
        *before,
        torch.get_num_threads(),
    )
    return y


CANDIDATES: Final[dict[str, Callable[[Tensor, DenseWeight, Tensor | None], Tensor]]] = {
    "c": _linear_c,
    "onednn": _linear_onednn,
}
"""Ways to x Wᵀ + b (+ residual) for a weight that has tiles, which `take` so many rows."""

_MEASURED_ROWS = (1, 4, 8, 16, NUM_ALIKE_ROWS, MAX_NATIVE_ROWS, _MANY_ROWS)
_weights_of: WeakKeyDictionary[Choice, WeakSet[DenseWeight]] = WeakKeyDictionary()
"""All weights of a choice: it is measured with them in turn, as a step reads them."""


def _choice_for(weight: Tensor, tiles: Tiles) -> Choice:
    out, size = weight.shape
    weights: WeakSet[DenseWeight] = WeakSet()
    weight_bytes, itemsize = weight.nbytes, weight.itemsize
    most = MAX_NATIVE_ROWS
    if tiles.width != TILES[0] and not multiplies_tiles(weight):
        most = _ROWS_WITHOUT_TILES
    elif torch.cpu._is_avx512_bf16_supported() and tiles.take(_MANY_ROWS):
        most = _MANY_ROWS
    made = Choice(
        operation="linear",
        shape=f"bfloat16 {out}x{size} in tiles of {tiles.width}",
        candidates=tuple(CANDIDATES),
        rows=tuple(rows for rows in _MEASURED_ROWS if tiles.take(rows)),
        default=lambda rows: "c" if rows <= most else "onednn",
        runs=partial(_runs, weights),
        cost=lambda rows: (weight_bytes + rows * (out + size) * itemsize, 2.0 * rows * out * size),
        probe=partial(_probe, weights),
        alike_rows=NUM_ALIKE_ROWS,
    )
    choice = shared_choice(made)
    if choice is made:
        _weights_of[choice] = weights
    return choice


def multiplies_tiles(weight: Tensor) -> bool:
    """Whether our loop multiplies rows with this weight by AMX, if that is there."""
    native = native_for(weight)
    return native is not None and bool(native.has_tiles()) and weight.shape[1] % TILES[1] == 0


def _inputs_of(weight: DenseWeight, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, weight.weight.shape[1], generator=generator).to(weight.weight.dtype)


def _runs(weights: WeakSet[DenseWeight], rows: int) -> dict[str, Run]:
    every = list(weights)
    x = _inputs_of(every[0], rows)
    turn = cycle(every)  # one for all: none finds in a cache what another has just read
    return {name: partial(_run, way, x, turn) for name, way in CANDIDATES.items()}


def _run(way: Callable[..., Tensor], x: Tensor, turn: Iterator[DenseWeight]) -> Tensor:
    return way(x, next(turn), None)


def _probe(weights: WeakSet[DenseWeight]) -> Callable[[str, int], Tensor]:
    """What rounding took away: a result, less what it is rounded."""
    weight = next(iter(weights))
    x = _inputs_of(weight, NUM_ALIKE_ROWS)
    rounded = -_linear_onednn(x, weight, None)
    return lambda name, rows: CANDIDATES[name](x[:rows], weight, rounded[:rows])


def linear_reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    activation: Activation = "none",
    residual: Tensor | None = None,
) -> Tensor:
    """The same in plain torch, for any device and dtype."""
    y = FUNCTIONS[activation](F.linear(x, weight, bias))
    return y if residual is None else y + residual
