"""Families whose pictures lie between marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sensorium.protocols.engine.messages import EncoderItem
from support.media_family import SIDE, SQUARE, TOWER, Family, any_shape, values
from torch import Tensor

_MARKS = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")


def _tiles(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    return {"pixel_values": torch.cat(list(map(values, items)))}


def _masked(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    found = any_shape(items, ids)
    mask = torch.zeros(found["pixel_values"][:, 0].shape, dtype=torch.bool)
    for index, (height, width) in enumerate(found["image_sizes"].tolist()):
        mask[index, :height, :width] = True
    return {"pixel_values": found["pixel_values"][None], "pixel_attention_mask": mask[None]}


FAMILIES = (
    Family(
        "ovis2",
        "<image>",
        ("<image>", *_MARKS, "<IMG_ATOM>"),
        {
            "vision_config": TOWER | {"vocab_size": 24, "num_visual_indicator_tokens": 5, "hidden_stride": 2},
            "image_token_id": "<IMG_ATOM>",
            "visual_indicator_token_ids": _MARKS,
            "vocab_size": 24,
            "hidden_size": 32,
        },
        {
            "image_processor_type": "Ovis2ImageProcessor",
            "size": SQUARE,
            "crop_to_patches": True,
            "max_patches": 4,
        },
        {"model_type": "qwen2"},
        _tiles,
    ),
    Family(
        "idefics2",
        "<image>",
        ("<image>", "<fake_token_around_image>"),
        {
            "vision_config": TOWER | {"model_type": "idefics2_vision"},
            "perceiver_config": {
                "hidden_size": 32,
                "resampler_n_latents": 4,
                "resampler_depth": 1,
                "resampler_n_heads": 2,
                "resampler_head_dim": 16,
                "num_key_value_heads": 1,
            },
            "image_token_id": "<image>",
        },
        {
            "image_processor_type": "Idefics2ImageProcessor",
            "size": {"shortest_edge": SIDE, "longest_edge": 2 * SIDE},
        },
        {"model_type": "mistral", "sliding_window": None, "head_dim": 8},
        _masked,
    ),
)
