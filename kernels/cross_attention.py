"""Attention of decoder rows over the encoder output their sequence listens to.

Rows that listen to the same encoder slot are consecutive (a span) and share one read of its keys and
values, however many requests they belong to. Values are stored transposed, so that a single row streams
through memory in both products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class CrossSpan(NamedTuple):
    """Rows `start` to `end` (exclusive) attend to key [heads, n, dim] and value [heads, dim, n]."""

    start: int
    end: int
    key: Tensor
    value: Tensor


def cross_scores(query: Tensor, key: Tensor) -> Tensor:
    """Unnormalised scores [heads, rows, positions] of query [rows, heads, dim], scaled by 1/√dim."""
    return torch.bmm((query * query.shape[-1] ** -0.5).transpose(0, 1), key.transpose(1, 2))


def cross_attention(query: Tensor, spans: Sequence[CrossSpan]) -> Tensor:
    """query [rows, heads, dim] → [rows, heads, dim]; the spans cover all rows, in order."""
    scaled = (query * query.shape[-1] ** -0.5).transpose(0, 1)
    out = torch.empty(scaled.shape, dtype=query.dtype, device=query.device)
    for start, end, key, value in spans:
        weights = torch.bmm(scaled[:, start:end], key.transpose(1, 2)).softmax(-1)
        if len(spans) == 1:
            out = torch.bmm(weights, value.transpose(1, 2))
        else:
            out[:, start:end] = torch.bmm(weights, value.transpose(1, 2))
    return out.transpose(0, 1)


def cross_attention_reference(query: Tensor, spans: Sequence[CrossSpan]) -> Tensor:
    """The same, one row at a time."""
    rows: list[Tensor] = []
    for start, end, key, value in spans:
        for row in query[start:end]:
            scores = torch.einsum("hd,hpd->hp", row, key) * row.shape[-1] ** -0.5
            rows.append(torch.einsum("hp,hdp->hd", scores.softmax(-1), value))
    return torch.stack(rows)
