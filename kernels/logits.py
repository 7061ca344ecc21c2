"""Logits of a head, and where its product is rounded the likeliest ones again, in float32.

A bfloat16 product gives logits with 8 bits: those around 20 are 1/8 apart, and near ties, which speech has in
every sentence, fall as the rounding likes. Only the largest decide, so only theirs are computed again.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from .linear import LinearWeight, linear
from .linear_bits import BitsWeight, linear_bits

NUM_LIKELIEST: Final = 32
"""Enough for every token that may win behind the rules of sampling, and nearly all of the probability."""


def head_logits(hidden: Tensor, head: LinearWeight) -> Tensor:
    """hidden [rows, in] → float32 [rows, vocab]; sums of a head of few bits are not rounded on the way."""
    if isinstance(head, BitsWeight):
        return linear_bits(hidden.float(), head)
    return linear(hidden, head).float()


def likeliest_in_float32(
    logits: Tensor, hidden: Tensor, weight: Tensor, *, is_rounded: bool = False
) -> Tensor:
    """float32 `logits` [rows, vocab], changed in place where they are among a row's largest.

    There they become the product of `hidden` [rows, in] and `weight` [vocab, in] accumulated, and kept, in
    float32. Nothing changes where both are float32 already and `is_rounded` does not say that it was.
    """
    if (weight.dtype is torch.float32 and not is_rounded) or not logits.shape[0]:
        return logits
    likeliest = logits.topk(min(NUM_LIKELIEST, logits.shape[1]), dim=1).indices
    exact = torch.bmm(weight[likeliest].float(), hidden.float()[:, :, None])[:, :, 0]
    return logits.scatter_(1, likeliest, exact)
