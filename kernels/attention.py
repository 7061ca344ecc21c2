"""Dense attention softmax(q kᵀ / √d) v for one padded batch: self-attention of encoder and decoder.

In bfloat16 on CPUs torch's fused attention is slow where it has no matrix instructions, and several times as
fast as anything else where it has; which one this is, a measurement says once. Where it is slow, batched
products of ever-changing lengths make oneDNN build a new primitive for each: so small problems run fused in
float32, and large unmasked ones (an encoder window) as two products per head, for as many query rows at a
time as keep the scores small: those of a large picture would take gigabytes. See
`examples/benchmarks/bench_engine.py`.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils.benchmark import Timer

MIN_ROWS_PER_HEAD = 300
"""Query rows from which two products per head beat the fused float32 kernel in bfloat16 on CPUs."""
MAX_SCORES = 1 << 22
"""Scores in memory at once: 8 MiB in bfloat16, as much for their softmax. A window of 30 s fits in whole."""

_PROBE: Final = (1, 4, 512, 64)
_PROBE_ROUNDS: Final = 5


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """[batch, heads, rows, dim] over [batch, heads, context, dim]; `mask` true where a query may look."""
    if query.device.type != "cpu" or query.dtype is not torch.bfloat16:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    if mask is None and prefers_fused():
        return F.scaled_dot_product_attention(query, key, value)
    if mask is None and query.shape[2] >= MIN_ROWS_PER_HEAD:
        return _attend_by_head(query, key, value)
    wide = F.scaled_dot_product_attention(query.float(), key.float(), value.float(), attn_mask=mask)
    return wide.to(query.dtype)


@cache
def prefers_fused() -> bool:
    """Whether torch's own kernel is the faster one in bfloat16 on this CPU: milliseconds, once a process."""
    query, key, value = torch.randn(3, *_PROBE).bfloat16()
    contenders = (F.scaled_dot_product_attention, _attend_by_head)
    fastest = [float("inf")] * len(contenders)
    for _ in range(_PROBE_ROUNDS):
        for index, contender in enumerate(contenders):
            run = partial(contender, query, key, value)
            fastest[index] = min(fastest[index], Timer("run()", globals={"run": run}).timeit(1).mean)
    return fastest[0] < fastest[1]


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


def attend_reference(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """The same as two products and a softmax."""
    scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-1, -2))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.matmul(scores.softmax(-1), value)
