"""The later Gemmas that see, and one that hears as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from sensorium.protocols.engine.messages import EncoderItem
from support.media_family import SIDE, Family, values
from torch import Tensor
from torch.nn.functional import pad


def padded(items: Sequence[EncoderItem]) -> dict[str, Tensor]:
    """Patches of any grids with zeros behind them, and where each lies."""
    features = list(map(values, items))
    most = max(map(len, features))
    places = []
    for item in items:
        _, tall, wide = item.features.grid or (1, 1, 1)
        y, x = torch.meshgrid(torch.arange(tall), torch.arange(wide), indexing="ij")
        places.append(torch.stack([x.flatten(), y.flatten()], -1))
    return {
        "pixel_values": torch.stack([pad(each, (0, 0, 0, most - len(each))) for each in features]),
        "image_position_ids": torch.stack(
            [pad(each, (0, 0, 0, most - len(each)), value=-1) for each in places]
        ),
    }


def _padded(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """The same, and which tokens are those of pictures; `ids` have the placeholder most often."""
    return {**padded(items), "mm_token_type_ids": (ids == int(ids.mode().values)).int()}


_VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "patch_size": SIDE // 8,
    "pooling_kernel_size": 3,
    "position_embedding_size": 64,
}
_TEXT = {
    "model_type": "gemma4_text",
    "head_dim": 8,
    "global_head_dim": 16,
    "num_hidden_layers": 4,
    "sliding_window": 12,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "pad_token_id": 5,
}


def _gemma4(**text: Any) -> Family:  # noqa: ANN401 (of a config)
    return Family(
        "gemma4",
        "<|image|>",
        ("<|image|>", "<|image>", "<image|>", "<|video|>", "<|audio|>"),
        {
            "vision_config": _VISION,
            "image_token_id": "<|image|>",
            "video_token_id": "<|video|>",
            "audio_token_id": "<|audio|>",
            "boi_token_id": "<|image>",
            "eoi_token_id": "<image|>",
        },
        {
            "image_processor_type": "Gemma4ImageProcessor",
            "patch_size": SIDE // 8,
            "max_soft_tokens": 20,
        },
        _TEXT | text,
        _padded,
    )


def _heard_and_seen(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """Pictures and recordings, which have zeros behind them."""
    pictures = [item for item in items if item.features.grid is not None]
    clips = [values(item) for item in items if item.features.grid is None]
    found = _padded(pictures, ids) if pictures else {}
    if clips:
        most = max(map(len, clips))
        found["input_features"] = torch.stack([pad(each, (0, 0, 0, most - len(each))) for each in clips])
        lengths = torch.tensor([len(each) for each in clips])
        found["input_features_mask"] = torch.arange(most) < lengths[:, None]
    return found


_AUDIO = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "subsampling_conv_channels": [16, 4],
    "conv_kernel_size": 3,
    "attention_chunk_size": 4,
    "attention_context_left": 5,
    "attention_context_right": 2,
    "output_proj_dims": 12,
}
FAMILIES = (
    _gemma4(hidden_size_per_layer_input=4, vocab_size_per_layer_input=400, num_kv_shared_layers=2),
    _gemma4(hidden_size_per_layer_input=0, use_bidirectional_attention="vision"),
)


def _with_audio(family: Family) -> Family:
    tokens = ("<|audio>", "<audio|>")
    return replace(
        family,
        place="{% if part.type == 'image' %}<|image|>{% else %}<|audio|>{% endif %}",
        tokens=(*family.tokens, *tokens),
        config={
            **family.config,
            "audio_config": _AUDIO,
            "boa_token_id": tokens[0],
            "eoa_token_index": tokens[1],
        },
        processor={
            **family.processor,
            "feature_extractor_type": "Gemma4AudioFeatureExtractor",
            "feature_size": 16,
        },
        inputs=_heard_and_seen,
    )


HEARING = _with_audio(FAMILIES[0])
"""It takes sound beside pictures."""
