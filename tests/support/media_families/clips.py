"""Families that hear a recording as a whole (`CLIP_FAMILIES`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sensorium.protocols.engine.messages import EncoderItem
from support.media_family import Family, values
from torch import Tensor

_EXTRACTOR = {
    "feature_extractor_type": "GraniteSpeechFeatureExtractor",
    "melspec_kwargs": {"n_mels": 8, "n_fft": 512, "win_length": 400, "hop_length": 160},
}
_ENCODER: dict[str, Any] = {
    "input_dim": 16,
    "num_layers": 2,
    "hidden_dim": 16,
    "num_heads": 2,
    "output_dim": 6,
    "context_size": 12,
    "max_pos_emb": 16,
    "conv_kernel_size": 3,
}
_PROJECTOR: dict[str, Any] = {
    "model_type": "blip_2_qformer",
    "hidden_size": 16,
    "encoder_hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 8,
}


def whole(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """Recordings, which are of one length: the reference fills up others with silence that it hears."""
    features = torch.stack(list(map(values, items)))
    num_rows = items[0].num_tokens
    return {
        "input_features": features,
        "input_features_mask": torch.ones(len(items), num_rows, dtype=torch.bool),
    }


CLIP_FAMILIES = (
    Family(
        "granite_speech",
        "<|audio|>",
        ("<|audio|>",),
        {
            "encoder_config": _ENCODER,
            "projector_config": _PROJECTOR,
            "audio_token_index": "<|audio|>",
            "has_lora_adapter": False,
        },
        _EXTRACTOR,
        {"model_type": "granite", "embedding_multiplier": 3.0, "attention_multiplier": 0.2},
        whole,
    ),
    Family(
        "granite_speech_plus",
        "<|audio|>",
        ("<|audio|>",),
        {
            "encoder_config": _ENCODER
            | {"model_type": "granite_speech_plus_encoder", "cat_hidden_layers": [1]},
            "projector_config": _PROJECTOR | {"encoder_hidden_size": 32},
            "audio_token_index": "<|audio|>",
            "has_lora_adapter": False,
        },
        _EXTRACTOR,
        {"model_type": "granite"},
        whole,
    ),
)
