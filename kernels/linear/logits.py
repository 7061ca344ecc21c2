"""Logits of a head, and where its product is rounded the likeliest ones again, in float32.

A bfloat16 product gives logits with 8 bits: those around 20 are 1/8 apart, and near ties, which speech has in
every sentence, fall as the rounding likes. Only the largest decide, so only theirs are computed again.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from ..native import CODES, native_for
from .linear import LinearWeight, linear
from .quantized_linear import BitsWeight, linear_bits

NUM_LIKELIEST: Final = 32
"""Enough for every token that may win behind the rules of sampling, and nearly all of the probability."""


def head_logits(hidden: Tensor, head: LinearWeight) -> Tensor:
    """hidden [rows, in] → float32 [rows, vocab]; sums of a head of few bits are not rounded on the way."""
    return _product(hidden, head).float()


def _product(hidden: Tensor, head: LinearWeight) -> Tensor:
    if isinstance(head, BitsWeight):
        return linear_bits(hidden.float(), head)
    return linear(hidden, head)


def exact_head_logits(hidden: Tensor, head: LinearWeight, weight: Tensor) -> Tensor:
    """The same with the likeliest of each row again from `weight` [vocab, in], what `head` was made of."""
    is_rounded = isinstance(head, BitsWeight)
    return likeliest_in_float32(_product(hidden, head), hidden, weight, is_rounded=is_rounded)


def likeliest_in_float32(
    logits: Tensor, hidden: Tensor, weight: Tensor, *, is_rounded: bool = False
) -> Tensor:
    """`logits` [rows, vocab] as float32 (in place if they are), changed where they are among a row's largest.

    There they become the product of `hidden` [rows, in] and `weight` [vocab, in] accumulated, and kept, in
    float32. Nothing changes where both are float32 already and `is_rounded` does not say that it was.
    """
    rows, vocab = logits.shape
    if (weight.dtype is torch.float32 and not is_rounded) or not rows:
        return logits.float()
    native, num = native_for(logits), min(NUM_LIKELIEST, vocab)
    known = hidden.dtype is weight.dtype and weight.dtype in CODES
    if native is None or not known or not all(each.is_contiguous() for each in (logits, hidden, weight)):
        logits = logits.float()
        likeliest = logits.topk(num, dim=1).indices
        # Not `bmm`, whose sums depend on how many rows there are.
        exact = (weight[likeliest].float() * hidden.float()[:, None]).sum(2)
        rounded = logits.gather(1, likeliest)
        return logits.scatter_(1, likeliest, torch.where(rounded.isnan(), rounded, exact))
    out = logits if logits.dtype is torch.float32 else torch.empty((rows, vocab))
    native.exact_logits(
        CODES[weight.dtype],
        CODES[logits.dtype],
        logits.data_ptr(),
        hidden.data_ptr(),
        weight.data_ptr(),
        rows,
        vocab,
        weight.shape[1],
        num,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out
