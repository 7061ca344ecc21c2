"""A small Gemma 3n, whose tower that sees is a small network of timm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sensorium.protocols.engine.messages import EncoderItem
from support.media_family import Family, values
from support.text_folder import byte_level_tokenizer
from torch import Tensor
from torch.nn.functional import pad

SIDE = 64
_TOKENS = ("<boi>", "<boa>", "<eoi>", "<image>", "<eoa>", "<audio>")
"""The last four are those of the encoders."""


def _id_of(token: str) -> int:
    token_id = byte_level_tokenizer(320, _TOKENS).token_to_id(token)
    assert token_id is not None
    return token_id


def _heard_and_seen(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """Squares and recordings, which have zeros behind them."""
    pictures = [values(item) for item in items if len(item.features.shape) == 3]
    clips = [values(item) for item in items if len(item.features.shape) == 2]
    found: dict[str, Any] = {}
    if pictures:
        found["pixel_values"] = torch.stack(pictures)
    if clips:
        most = max(map(len, clips))
        found["input_features"] = torch.stack([pad(each, (0, 0, 0, most - len(each))) for each in clips])
        lengths = torch.tensor([len(each) for each in clips])
        found["input_features_mask"] = torch.arange(most) < lengths[:, None]
    return found


def gemma3n() -> Family:
    """It sees and hears."""
    num_layers = 4
    return Family(
        "gemma3n",
        "{% if part.type == 'image' %}<image>{% else %}<audio>{% endif %}",
        _TOKENS,
        {
            "vision_config": {
                "architecture": "test_convnext",
                "hidden_size": 64,
                "vocab_size": 2,
                "vocab_offset": _id_of("<eoi>"),
                "num_classes": 2,
            },
            "audio_config": {
                "vocab_size": 5,
                "vocab_offset": _id_of("<eoa>"),
                "input_feat_size": 16,
                "hidden_size": 16,
                "conf_attention_chunk_size": 4,
                "conf_attention_context_left": 5,
                "conf_attention_context_right": 0,
                "conf_num_attention_heads": 2,
                "conf_num_hidden_layers": 2,
                "sscp_conv_channel_size": [8, 4],
            },
            "audio_soft_tokens_per_image": 12,
            "vision_soft_tokens_per_image": 4,
            "image_token_id": "<image>",
            "boi_token_id": "<boi>",
            "eoi_token_id": "<eoi>",
            "audio_token_id": "<audio>",
            "boa_token_id": "<boa>",
            "eoa_token_id": "<eoa>",
        },
        {
            "image_processor_type": "SiglipImageProcessor",
            "size": {"height": SIDE, "width": SIDE},
            "feature_extractor_type": "Gemma3nAudioFeatureExtractor",
            "feature_size": 16,
        },
        {
            "model_type": "gemma3n_text",
            "head_dim": 8,
            "num_hidden_layers": num_layers,
            "sliding_window": 12,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_kv_shared_layers": 2,
            "intermediate_size": [48] * num_layers,
            "activation_sparsity_pattern": [0.0] * num_layers,
            "hidden_size_per_layer_input": 4,
            "vocab_size_per_layer_input": _id_of("<eoi>"),
            "laurel_rank": 4,
        },
        _heard_and_seen,
    )
