"""Dense attention softmax(q kᵀ / √d) v for one padded batch: self-attention of encoder and decoder.

In bfloat16 on CPUs torch's fused attention is slow where it has no matrix instructions, and several times as
fast as anything else where it has. Where it is slow, batched products of ever-changing lengths make oneDNN
build a new primitive for each: so small problems run fused in float32, and large unmasked ones (an encoder
window) as two products per head, for as many query rows at a time as keep the scores small: those of a large
picture would take gigabytes. Those are defaults: an encoder says with `attention_choice` what it will ask
for, so that it can be measured (`choice.py`). See `examples/benchmarks/bench_engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .choice import Choice, Run, shared_choice

MIN_ROWS_PER_HEAD = 300
"""Query rows from which two products per head beat the fused float32 kernel in bfloat16 on CPUs."""
MAX_SCORES = 1 << 22
"""Scores in memory at once: 8 MiB in bfloat16, as much for their softmax. A window of 30 s fits in whole."""

_MEASURED_ROWS: Final = (128, MIN_ROWS_PER_HEAD - 1, 750, 1500)


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, choice: Choice | None = None
) -> Tensor:
    """[batch, heads, rows, dim] over [batch, heads, context, dim]; `mask` true where a query may look.

    The way depends on rows, type and `choice` only, so an item has the same result beside any others.
    """
    if query.device.type != "cpu" or query.dtype is not torch.bfloat16:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    if mask is not None:
        return _attend_in_float32(query, key, value, mask)
    rows = query.shape[2]
    return CANDIDATES[_default(rows) if choice is None else choice.at(rows)](query, key, value)


def _default(rows: int) -> str:
    if torch.cpu._is_amx_tile_supported():
        return "fused"
    return "by head" if rows >= MIN_ROWS_PER_HEAD else "in float32"


def attention_choice(
    heads: int, dim: int, most_rows: int | None, dtype: torch.dtype, device: torch.device
) -> Choice | None:
    """For an encoder whose items have up to `most_rows` rows, and never a mask: items that get one from their
    neighbours would be computed by two ways. None where there is one way only."""
    if device.type != "cpu" or dtype is not torch.bfloat16:
        return None
    fewer = [rows for rows in _MEASURED_ROWS if most_rows is not None and rows < most_rows]
    measured = _MEASURED_ROWS if most_rows is None else _MEASURED_ROWS[: len(fewer) + 1]
    return shared_choice(
        Choice(
            operation="attention",
            shape=f"bfloat16 {heads}x{dim} up to {measured[-1]}",
            candidates=tuple(CANDIDATES),
            rows=measured,
            default=_default,
            runs=partial(_runs, heads, dim),
            cost=lambda rows: (8.0 * heads * dim * rows, 4.0 * heads * dim * rows * rows),
        )
    )


def _runs(heads: int, dim: int, rows: int) -> dict[str, Run]:
    joined = torch.randn(1, rows, 3, heads, dim, generator=torch.Generator().manual_seed(rows))
    query, key, value = joined.bfloat16().permute(2, 0, 3, 1, 4)  # as it lies behind its projection
    return {name: partial(way, query, key, value) for name, way in CANDIDATES.items()}


def _attend_in_float32(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    wide = F.scaled_dot_product_attention(query.float(), key.float(), value.float(), attn_mask=mask)
    return wide.to(query.dtype)


def _attend_by_head(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    batch, heads, rows, dim = query.shape
    # Laid out [batch, rows, heads, dim], as the caller wants to read it.
    out = torch.empty((batch, rows, heads, dim), dtype=query.dtype, device=query.device).transpose(1, 2)
    scaled = query * dim**-0.5
    most = max(1, MAX_SCORES // key.shape[2])
    num_blocks = -(-rows // most)
    for b in range(batch):
        for h in range(heads):
            for first, end in pairwise(rows * block // num_blocks for block in range(num_blocks + 1)):
                weights = torch.mm(scaled[b, h, first:end], key[b, h].t()).softmax(-1)
                out[b, h, first:end] = torch.mm(weights, value[b, h])
    return out


CANDIDATES: Final[dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "fused": F.scaled_dot_product_attention,
    "by head": _attend_by_head,
    "in float32": _attend_in_float32,
}
"""Ways to attend to everything in bfloat16 on a CPU."""
