"""Dense attention softmax(q kᵀ / √d) v of encoders: the rows of an item attend to all of that item.

On a CPU float32 has our own way (`cpu/attend_many.h`). In bfloat16 there are several: ours is the fastest
where products of bfloat16 are instructions on vectors, or on tiles, of which heads must be whole ones;
torch's fused attention for other heads beside those, and elsewhere that of float32. Those are defaults: an
encoder says with `attention_choice` what it will ask for, so that it can be measured (`kernels/autotune.py`).
None of them holds all scores at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ..autotune import Choice, Run, shared_choice
from ..native import CODES, native_for

_MEASURED_ROWS: Final = (128, 299, 750, 1500)
_TILE: Final = 32
"""Dimensions to a tile, where products of tiles are instructions."""


def attend_items(vectors: Sequence[Tensor], lengths: Sequence[int], choice: Choice | None = None) -> Tensor:
    """Queries, keys and values [rows, heads, dim] of items of so many rows, one behind the other → the same.

    Neighbours of equal length run together.
    """
    mixed: list[Tensor] = []
    first = 0
    for length, alike in groupby(lengths):
        end = first + length * len(list(alike))
        shape = (-1, length, *vectors[0].shape[1:])
        query, key, value = (each[first:end].view(shape).transpose(1, 2) for each in vectors)
        mixed.append(attend(query, key, value, choice).transpose(1, 2).flatten(0, 1))
        first = end
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def attend(query: Tensor, key: Tensor, value: Tensor, choice: Choice | None = None) -> Tensor:
    """[batch, heads, rows, dim] over [batch, heads, context, dim], which lies [batch, rows, heads, dim] if C
    made it.

    The way depends on rows, type and `choice` only, so an item has the same result beside any others.
    """
    if query.device.type != "cpu" or query.dtype is not torch.bfloat16:
        return _attend_plainly(query, key, value)
    name = _default(query.shape[3]) if choice is None else choice.at(query.shape[2])
    return CANDIDATES[name](query, key, value)


def _default(dim: int) -> str:
    if torch.cpu._is_amx_tile_supported():
        return "c" if dim % _TILE == 0 and _has_c(dim) else "fused"
    return "c" if torch.cpu._is_avx512_bf16_supported() and _has_c(dim) else "in float32"


def _has_c(dim: int) -> bool:
    return dim % 2 == 0 and native_for(torch.empty(0, dtype=torch.bfloat16)) is not None


def _attend_plainly(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """In the one way that a type other than bfloat16 has."""
    if query.is_cpu and query.dtype is torch.float32 and _has_c(query.shape[3]):
        return _attend_c(query, key, value)
    return F.scaled_dot_product_attention(query, key, value)


def attention_choice(
    heads: int, dim: int, most_rows: int | None, dtype: torch.dtype, device: torch.device
) -> Choice | None:
    """For an encoder whose items have up to `most_rows` rows. None where there is one way only."""
    if device.type != "cpu" or dtype is not torch.bfloat16:
        return None
    fewer = [rows for rows in _MEASURED_ROWS if most_rows is not None and rows < most_rows]
    measured = _MEASURED_ROWS if most_rows is None else _MEASURED_ROWS[: len(fewer) + 1]
    names = tuple(name for name in CANDIDATES if name != "c" or _has_c(dim))
    return shared_choice(
        Choice(
            operation="attention",
            shape=f"bfloat16 {heads}x{dim} up to {measured[-1]}",
            candidates=names,
            rows=measured,
            default=lambda _: _default(dim),
            runs=partial(_runs, names, heads, dim),
            cost=lambda rows: (8.0 * heads * dim * rows, 4.0 * heads * dim * rows * rows),
        )
    )


def _runs(names: Sequence[str], heads: int, dim: int, rows: int) -> dict[str, Run]:
    joined = torch.randn(1, rows, 3, heads, dim, generator=torch.Generator().manual_seed(rows))
    query, key, value = joined.bfloat16().permute(2, 0, 3, 1, 4)  # as it lies behind its projection
    return {name: partial(CANDIDATES[name], query, key, value) for name in names}


def _attend_c(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    native = native_for(query)
    assert native is not None
    batch, heads, rows, dim = query.shape
    laid = [_in_rows(each) for each in (query, key, value)]
    out = torch.empty((batch, rows, heads, dim), dtype=query.dtype)
    native.attention_of_items(
        CODES[query.dtype],
        *(number for each, step in laid for number in (each.data_ptr(), step)),
        batch,
        rows,
        key.shape[2],
        heads,
        dim,
        dim**-0.5,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out.transpose(1, 2)


def _in_rows(x: Tensor) -> tuple[Tensor, int]:
    """[batch, heads, rows, dim] → [batch, rows, heads, dim], and how far apart the rows of all items are."""
    batch, heads, rows, dim = x.shape
    x = x.transpose(1, 2)
    step = x.stride(1) if rows > 1 else x.stride(0)  # that of one row says nothing
    if x.stride()[2:] == (dim, 1) and (batch == 1 or x.stride(0) == rows * step):
        return x, step
    return x.contiguous(), heads * dim


def _attend_fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return _one_by_one(F.scaled_dot_product_attention, query, key, value)


def _attend_in_float32(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    wide = _one_by_one(_attend_plainly, query.float(), key.float(), value.float())
    return wide.to(query.dtype)


def _one_by_one(way: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """torch lays out keys or does not by all there is to do."""
    items = [way(*each) for each in zip(*(tensor.unsqueeze(1) for tensor in given), strict=True)]
    return items[0] if len(items) == 1 else torch.cat(items)


CANDIDATES: Final[dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "c": _attend_c,
    "fused": _attend_fused,
    "in float32": _attend_in_float32,
}
"""Ways to attend in bfloat16 on a CPU."""
