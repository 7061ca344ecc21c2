"""Attention of decoder rows over the encoder output their sequence listens to.

Rows that listen to the same encoder slot are consecutive (a span) and share one read of its keys and
values, however many requests they belong to. Where there are C kernels it is that of the paged cache
(`cpu/attention.c`), for which an encoding is one long block; elsewhere two products and a softmax.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .native import CODES, Native, native_for

_FIRST_BLOCK = (ctypes.c_int32 * 1)(0)


class CrossSpan(NamedTuple):
    """Rows `start` to `end` (exclusive) attend to keys and values in `memory` [2, heads, n, dim]."""

    start: int
    end: int
    memory: Tensor


def cross_scores(query: Tensor, key: Tensor) -> Tensor:
    """Unnormalised scores [heads, rows, positions] of query [rows, heads, dim], scaled by 1/√dim."""
    return torch.bmm((query * query.shape[-1] ** -0.5).transpose(0, 1), key.transpose(1, 2))


def cross_attention(query: Tensor, spans: Sequence[CrossSpan]) -> Tensor:
    """query [rows, heads, dim] → [rows, heads, dim]; the spans cover all rows, in order."""
    native = native_for(query)
    if native is not None and query.shape[2] % 2 == 0:
        return _cross_attention_native(native, query.contiguous(), spans)
    return cross_attention_by_products(query, spans)


def cross_attention_by_products(query: Tensor, spans: Sequence[CrossSpan]) -> Tensor:
    """The same in torch, for any device."""
    out = torch.empty_like(query)
    for start, end, memory in spans:
        weights = cross_scores(query[start:end], memory[0]).softmax(-1)
        out[start:end] = torch.bmm(weights, memory[1]).transpose(0, 1)
    return out


def _cross_attention_native(native: Native, query: Tensor, spans: Sequence[CrossSpan]) -> Tensor:
    _, heads, dim = query.shape
    row_bytes = heads * dim * query.itemsize
    out = torch.empty_like(query)
    for start, end, memory in spans:
        assert memory.dtype is query.dtype, "rows and encodings have one type"
        assert memory.is_contiguous(), "an encoding lies in one piece"
        assert (memory.shape[0], memory.shape[1], memory.shape[3]) == (2, heads, dim)
        native.attention(
            CODES[query.dtype],
            query.data_ptr() + start * row_bytes,
            heads * dim,
            memory.data_ptr(),
            _FIRST_BLOCK,
            1,
            (ctypes.c_int32 * 2)(0, end - start),
            (ctypes.c_int32 * 1)(memory.shape[2]),
            1,
            heads,
            heads,
            dim,
            memory.shape[2],
            0,
            0,
            dim**-0.5,
            out.data_ptr() + start * row_bytes,
            torch.get_num_threads(),
        )
    return out


def cross_attention_reference(query: Tensor, spans: Sequence[CrossSpan]) -> Tensor:
    """The same, one row at a time."""
    rows: list[Tensor] = []
    for start, end, (key, value) in spans:
        for row in query[start:end]:
            scores = torch.einsum("hd,hpd->hp", row, key) * row.shape[-1] ** -0.5
            rows.append(torch.einsum("hp,hpd->hd", scores.softmax(-1), value))
    return torch.stack(rows)
