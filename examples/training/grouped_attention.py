"""Attention in bfloat16 matrices throughout, for training on CPU; several query heads may share a key.

`GROUPED` is its name in `transformers`. The fused kernel's backward pass takes twice as long on CPUs, and
autocast would take the softmax through float32 and back. Knows no network.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask


def _grouped_attention(
    _module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **_: object,
) -> tuple[torch.Tensor, None]:
    shared = query.shape[1] // key.shape[1]
    query, key = query.to(value.dtype), key.to(value.dtype)
    if shared > 1:
        key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
    with torch.autocast("cpu", enabled=False):
        scores = torch.matmul(query * scaling, key.transpose(2, 3))
        if attention_mask is not None:
            scores = scores + attention_mask.to(scores.dtype)
        mixed = torch.matmul(scores.softmax(-1), value)
    return mixed.transpose(1, 2), None


GROUPED: Final = "tiny_grouped_plain"
AttentionInterface.register(GROUPED, _grouped_attention)
AttentionMaskInterface.register(GROUPED, eager_mask)
