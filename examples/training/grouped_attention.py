"""Attention in bfloat16 matrices where several query heads share a key, for training on CPU.

`GROUPED` is its name in `transformers`. Knows no network; `tiny_whisper_model.py` says why it is not fused.
"""

from __future__ import annotations

from typing import Final

import torch
from tiny_whisper_model import plain_attention
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask


def _grouped_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """`plain_attention` where several query heads share a key."""
    shared = query.shape[1] // key.shape[1]
    key, value = key.to(value.dtype).repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
    query = query.to(value.dtype)
    return plain_attention(module, query, key, value, attention_mask, scaling)


GROUPED: Final = "tiny_grouped_plain"
AttentionInterface.register(GROUPED, _grouped_attention)
AttentionMaskInterface.register(GROUPED, eager_mask)
