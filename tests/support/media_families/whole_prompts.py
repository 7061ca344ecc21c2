"""PaliGemma: each token of a prompt attends to all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sensorium.protocols.engine.messages import EncoderItem
from support.media_family import SIDE, SIGLIP, SQUARE, TOWER, Family, stacked
from torch import Tensor


def _whole(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """Squares if there are any; the prompt is a prefix, which has no answer in it."""
    return (stacked(items, ids) if items else {}) | {"token_type_ids": torch.zeros_like(ids)}


def _paligemma(**text: Any) -> Family:  # noqa: ANN401 (of a config)
    return Family(
        "paligemma",
        "<image>",
        ("<image>",),
        {
            "vision_config": TOWER | SIGLIP | {"vision_use_head": False, "image_size": SIDE},
            "image_token_index": "<image>",
            "projection_dim": 32,
            "hidden_size": 32,
        },
        {"image_processor_type": "SiglipImageProcessor", "size": SQUARE},
        {"head_dim": 8, **text},
        _whole,
        has_text_inputs=True,
    )


FAMILIES = (
    _paligemma(model_type="gemma2", sliding_window=512, query_pre_attn_scalar=8),
    _paligemma(model_type="gemma"),
)
