"""Phi-4 multimodal (`PHI4`), which sees and hears."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sensorium.protocols.engine.messages import EncoderItem
from support.media_family import SIDE, SQUARE, Family, values
from torch import Tensor

_PATCHES = 4
"""On a side of a tile."""


def seen_and_heard(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """Pictures with black tiles behind those that have fewer than others, and recordings of one length:
    `transformers` lets those of others hear the silence behind them."""
    pictures = [item for item in items if item.features.grid is not None]
    sounds = [values(item) for item in items if item.features.grid is None]
    found: dict[str, Any] = {}
    if sounds:
        found["audio_input_features"] = torch.stack(sounds)
        found["audio_embed_sizes"] = torch.tensor([-(-len(each) // 8) for each in sounds])
    if pictures:
        most = max(item.features.shape[0] for item in pictures)
        pixels = torch.zeros(len(pictures), most, 3, SIDE, SIDE)
        mask = torch.ones(len(pictures), most, _PATCHES, _PATCHES)
        sizes = []
        for index, item in enumerate(pictures):
            tiles, (lines, down, across) = item.features.shape[0], item.features.grid or (1, 1, 1)
            columns = (tiles - 1) // lines
            pixels[index, :tiles] = values(item)
            shown = torch.zeros(lines * _PATCHES, columns * _PATCHES)
            shown[:down, :across] = 1
            squares = shown.view(lines, _PATCHES, columns, _PATCHES).transpose(1, 2)
            mask[index, 1:tiles] = squares.reshape(-1, _PATCHES, _PATCHES)
            sizes.append([lines * SIDE, columns * SIDE])
        found |= {
            "image_pixel_values": pixels,
            "image_attention_mask": mask,
            "image_sizes": torch.tensor(sizes),
        }
    return found


PHI4 = Family(
    "phi4_multimodal",
    "{% if part.type == 'image' %}<|image|>{% else %}<|audio|>{% endif %}",
    ("<|image|>", "<|audio|>"),
    {
        "vision_config": {
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": SIDE,
            "patch_size": SIDE // _PATCHES,
            "crop_size": SIDE,
            "image_token_id": "<|image|>",
        },
        "audio_config": {
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_blocks": 2,
            "num_attention_heads": 2,
            "ext_pw_out_channel": 16,
            "depthwise_separable_out_channel": 16,
            "nemo_conv_channels": 4,
            "input_size": 16,
            "bias_max_distance": 20,
            "audio_token_id": "<|audio|>",
        },
    },
    {
        "image_processor_type": "Phi4MultimodalImageProcessor",
        "size": SQUARE,
        "patch_size": SIDE // _PATCHES,
        "dynamic_hd": 4,
        "feature_extractor_type": "Phi4MultimodalFeatureExtractor",
        "feature_size": 16,
    },
    {"pad_token_id": 0},
    seen_and_heard,
    has_parts=False,
)
