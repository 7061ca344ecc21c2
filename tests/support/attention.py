"""What attention means, in plain torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sensorium.kernels.attention.cross_attention import CrossSpan
from torch import Tensor


def attend_reference(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """`attend` as two products and a softmax."""
    scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-1, -2))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.matmul(scores.softmax(-1), value)


def cross_attention_reference(query: Tensor, spans: Sequence[CrossSpan]) -> Tensor:
    """`cross_attention`, one row at a time."""
    rows: list[Tensor] = []
    for span in spans:
        key, value = (each.to(query.dtype) for each in span.key_value())
        for row in query[span.start : span.end]:
            scores = torch.einsum("hd,hpd->hp", row, key) * row.shape[-1] ** -0.5
            rows.append(torch.einsum("hp,hpd->hd", scores.softmax(-1), value))
    return torch.stack(rows)
