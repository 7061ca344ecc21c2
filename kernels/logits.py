"""Logits of a head whose product is rounded: the likeliest ones again, in float32.

A bfloat16 product gives logits with 8 bits: those around 20 are 1/8 apart, and near ties, which speech has in
every sentence, fall as the rounding likes. Only the largest decide, so only theirs are computed again.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

NUM_LIKELIEST: Final = 32
"""Enough for every token that may win behind the rules of sampling, and nearly all of the probability."""


def likeliest_in_float32(logits: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
    """float32 `logits` [rows, vocab], changed in place where they are among a row's largest.

    There they become the product of `hidden` [rows, in] and `weight` [vocab, in] accumulated, and kept, in
    float32. Nothing changes where both are float32 already.
    """
    if weight.dtype is torch.float32 or not logits.shape[0]:
        return logits
    likeliest = logits.topk(min(NUM_LIKELIEST, logits.shape[1]), dim=1).indices
    exact = torch.bmm(weight[likeliest].float(), hidden.float()[:, :, None])[:, :, 0]
    return logits.scatter_(1, likeliest, exact)
