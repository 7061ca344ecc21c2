"""Attention of decoder rows over the encoder output their sequence listens to.

Rows that listen to the same encoder slot are consecutive (a span) and share one read of its keys and
values, however many requests they belong to. Where there are C kernels it is that of the paged cache
(`cpu/attention.c`), for which an encoding is one long block, in one call for all spans; elsewhere two
products and a softmax.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..native import CODES, Native, native_for
from .kv_cache import gather_kv, takes_codes
from .kv_quantization import CODED, head_size


class CrossSpan(NamedTuple):
    """Rows `start` to `end` (exclusive) attend to keys and values in `memory` [2, heads, n, dim].

    As codes (`kv_quantization.py`) `memory` is one block of them, whose first `num_positions` are looked at.
    """

    start: int
    end: int
    memory: Tensor
    num_positions: int | None = None

    def of_layer(self, number: int) -> CrossSpan:
        """One layer's, of a span whose memory is that of several."""
        return self._replace(memory=self.memory[number])

    @property
    def length(self) -> int:
        """Positions that are looked at."""
        return self.memory.shape[2] if self.num_positions is None else self.num_positions

    def key_value(self) -> tuple[Tensor, Tensor]:
        """Both [heads, length, dim], as numbers."""
        if self.memory.dtype is not CODED:
            return self.memory[0], self.memory[1]
        table = torch.zeros(1, dtype=torch.int64, device=self.memory.device)
        return gather_kv(self.memory[None], table, self.length)


def cross_scores(query: Tensor, key: Tensor) -> Tensor:
    """Unnormalised scores [heads, rows, positions] of query [rows, heads, dim], scaled by 1/√dim."""
    return torch.bmm((query * query.shape[-1] ** -0.5).transpose(0, 1), key.transpose(1, 2))


def cross_attention(query: Tensor, spans: Sequence[CrossSpan]) -> Tensor:
    """query [rows, heads, dim] → [rows, heads, dim]; the spans cover all rows, in order."""
    native = native_for(query)
    coded = any(span.memory.dtype is CODED for span in spans)
    usable = (
        all(takes_codes(native, span.memory[None]) for span in spans) if coded else query.shape[2] % 2 == 0
    )
    if native is not None and usable:
        return _cross_attention_native(native, query.contiguous(), spans)
    return cross_attention_by_products(query, spans)


def cross_attention_by_products(query: Tensor, spans: Sequence[CrossSpan]) -> Tensor:
    """The same in torch, for any device."""
    out = torch.empty_like(query)
    for span in spans:
        key, value = span.key_value()
        rows = query[span.start : span.end].to(key.dtype)
        weights = cross_scores(rows, key).softmax(-1)
        out[span.start : span.end] = torch.bmm(weights, value).transpose(0, 1)
    return out


def _cross_attention_native(native: Native, query: Tensor, spans: Sequence[CrossSpan]) -> Tensor:
    _, heads, dim = query.shape
    coded = bool(spans) and spans[0].memory.dtype is CODED
    for span in spans:
        memory = span.memory
        assert memory.dtype is (CODED if coded else query.dtype), "rows and encodings have one type"
        assert memory.is_contiguous(), "an encoding lies in one piece"
        assert (memory.shape[0], memory.shape[1], head_size(memory)) == (2, heads, dim)
    memories = array("q", [span.memory.data_ptr() for span in spans])
    starts = array("i", [0, *(span.end for span in spans)])
    lengths = array("i", [span.length for span in spans])
    out = torch.empty_like(query)
    native.cross_attention(
        CODES[query.dtype],
        coded,
        query.data_ptr(),
        heads * dim,
        memories.buffer_info()[0],
        starts.buffer_info()[0],
        lengths.buffer_info()[0],
        len(spans),
        heads,
        dim,
        dim**-0.5,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out
