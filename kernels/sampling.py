"""Random choice of tokens from logits.

The randomness comes in as numbers in [0, 1), so a choice depends on its own row and number alone. Greedy
choice is `kernels/argmax.py`; who wants what is `engine/execution/sampler.py`'s knowledge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .gpu.jit import has_triton
from .transfer import to_device

NEVER = float("-inf")

_NUM_LIKELIEST = 512
"""top_p mostly ends within so many tokens; then nobody sorts the vocabulary."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Per row: `temperature` above 0, the `top_k` likeliest (0: all), the likeliest up to the probability
    `top_p` (1: all), and those of at least `min_p` times the likeliest (0: all)."""

    temperature: Sequence[float]
    top_k: Sequence[int]
    top_p: Sequence[float]
    min_p: Sequence[float]

    @property
    def lowest(self) -> list[float]:
        """`min_p` as the least difference from the highest scaled logit."""
        return [math.log(p) if p > 0 else NEVER for p in self.min_p]


def draw(logits: Tensor, filters: Filters, uniforms: Sequence[float]) -> Tensor:
    """A token for each row of float32 logits [rows, vocab] → int64 [rows]: temperature, min_p, top_k, top_p,
    then the inverse of the distribution function (in the order of the vocabulary) at a number in [0, 1).

    Tokens as likely as the last one kept by top_k or top_p are kept too. Rows with NaN get any token.
    """
    if has_triton(logits):
        from .gpu.sampling import draw as draw_on_gpu

        return draw_on_gpu(logits, filters, uniforms)
    return draw_reference(logits, filters, uniforms)


def draw_reference(logits: Tensor, filters: Filters, uniforms: Sequence[float]) -> Tensor:
    """The same in plain torch."""
    return draw_weighted(_weights(logits, filters), uniforms)


def probabilities(logits: Tensor, filters: Filters) -> Tensor:
    """What `draw` chooses by, of float32 logits [rows, vocab] → float32 [rows, vocab]."""
    weights = _weights(logits, filters)
    return weights / weights.sum(-1, keepdim=True)


def draw_weighted(weights: Tensor, uniforms: Sequence[float]) -> Tensor:
    """A token for each row of weights [rows, vocab], at least one of which is above 0 → int64 [rows]: the
    inverse of the distribution function at a number in [0, 1)."""
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    at = _column(uniforms, weights.device, torch.float64)
    target = torch.minimum(at * total, total.nextafter(torch.zeros_like(total)))
    found = torch.searchsorted(cumulative, target, right=True)[:, 0]
    return found.clamp_max(weights.shape[1] - 1)


def _column(values: Sequence[float], device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    return to_device(torch.tensor(values, dtype=dtype), device)[:, None]


def _weights(logits: Tensor, filters: Filters) -> Tensor:
    """The likeliest token's is 1, those of tokens that the filters leave out are 0."""
    # The highest becomes 0, so that no temperature makes an infinity of it.
    scaled = (logits - logits.amax(-1, keepdim=True)) / _column(filters.temperature, logits.device)
    if any(p > 0 for p in filters.min_p):
        scaled.masked_fill_(scaled < _column(filters.lowest, logits.device), NEVER)
    if any(k > 0 for k in filters.top_k):
        _keep_top_k(scaled, filters.top_k)
    if any(p < 1 for p in filters.top_p):
        _keep_top_p(scaled, filters.top_p)
    return scaled.exp_()


def _keep_top_k(scaled: Tensor, top_k: Sequence[int]) -> None:
    vocab = scaled.shape[1]
    wanted = [min(k, vocab) if k > 0 else vocab for k in top_k]
    limited = [row for row, k in enumerate(wanted) if k < vocab]
    if not limited:
        return
    rows = torch.tensor(limited, device=scaled.device)
    places = torch.tensor([wanted[row] - 1 for row in limited], device=scaled.device)
    part = scaled[rows]
    values = part.topk(max(wanted[row] for row in limited), -1).values
    scaled[rows] = part.masked_fill_(part < values.gather(1, places[:, None]), NEVER)


def _keep_top_p(scaled: Tensor, top_p: Sequence[float]) -> None:
    """Keep the likeliest tokens until they reach top_p; always the first."""
    limited = [row for row, p in enumerate(top_p) if p < 1]
    rows = torch.tensor(limited, device=scaled.device)
    part = scaled[rows]
    wanted = torch.tensor([top_p[row] for row in limited], dtype=torch.float64, device=scaled.device)[:, None]
    total = part.exp().sum(-1, keepdim=True, dtype=torch.float64)
    vocab = part.shape[1]
    num = min(_NUM_LIKELIEST, vocab)
    while True:
        values = part.topk(num, -1).values if num < vocab else _descending(part)
        mass = values.exp().cumsum(-1, dtype=torch.float64) / total
        # A token stays while those before it have not reached top_p.
        kept = (mass < wanted).sum(-1, keepdim=True) + 1
        if num == vocab or int(kept.max()) <= num:
            break
        num = vocab
    last = values.gather(1, kept.clamp_max(num) - 1)
    scaled[rows] = part.masked_fill_(part < last, NEVER)


def _descending(part: Tensor) -> Tensor:
    """Each row sorted; NumPy does it several times as fast on CPUs."""
    if part.is_cpu:
        part = part.clone()
        part.numpy().sort(-1)
        return part.flip(-1)
    return part.sort(-1, descending=True).values
