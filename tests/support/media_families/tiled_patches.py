"""Families whose pictures are tiles, each of them patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sensorium.protocols.engine.messages import EncoderItem
from support.media_family import TOWER, Family, values
from support.recurrent_families import FAMILIES as RECURRENT
from torch import Tensor


def _padded_patches(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    features = list(map(values, items))
    lengths = torch.tensor([len(each) for each in features])
    return {
        "pixel_values": torch.nn.utils.rnn.pad_sequence(features, batch_first=True),
        "pixel_attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).int(),
        "spatial_shapes": torch.tensor([(item.features.grid or (0, 0, 0))[1:] for item in items]),
    }


FAMILIES = (
    Family(
        "lfm2_vl",
        "<image>",
        (
            *("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"),
            *("<|img_row_1_col_1|>", "<|img_row_1_col_2|>", "<|img_row_2_col_1|>"),
        ),
        {
            "vision_config": TOWER
            | {
                "model_type": "siglip2_vision_model",
                "patch_size": 4,
                "num_patches": 16,
                "vision_use_head": False,
            },
            "image_token_id": "<image>",
            "projector_hidden_size": 24,
        },
        {
            "image_processor_type": "Lfm2VlImageProcessorFast",
            "encoder_patch_size": 4,
            "tile_size": 32,
            "min_image_tokens": 2,
            "max_image_tokens": 16,
            "max_tiles": 4,
        },
        {"model_type": "lfm2", **RECURRENT["lfm2"], "vocab_size": 400},
        _padded_patches,
    ),
)
