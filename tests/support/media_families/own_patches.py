"""Families whose pictures are patches, in the family's order or on its axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sensorium.protocols.engine.messages import EncoderItem
from support.media_family import Family, patches
from torch import Tensor


def _square_patches(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    found = patches(items, ids)
    del found["mm_token_type_ids"]
    return found | {"pixel_values": found["pixel_values"].view(-1, 3, 4, 4)}


FAMILIES = (
    Family(
        "hunyuan_vl",
        "<hy_begin><hy_image><hy_end>",
        ("<hy_begin>", "<hy_image>", "<hy_end>"),
        {
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "patch_size": 4,
                "max_image_size": 16,
            },
            "image_token_id": "<hy_image>",
            "im_start_id": "<hy_begin>",
            "im_end_id": "<hy_end>",
        },
        {
            "image_processor_type": "HunYuanVLImageProcessor",
            "patch_size": 4,
            "size": {"shortest_edge": 8 * 8 * 2, "longest_edge": 8 * 8 * 24},
        },
        {
            "model_type": "hunyuan_vl_text",
            "head_dim": 8,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "dynamic",
                "rope_theta": 10_000.0,
                "alpha": 2.0,
                "factor": 1.0,
                "mrope_section": [1, 1, 1, 1],
            },
        },
        patches,
    ),
    Family(
        "kimi_k25",
        "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>",
        ("<|media_begin|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>", "<|video_place|>"),
        {
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "patch_size": 4,
                "pos_emb_height": 6,
                "pos_emb_width": 6,
            },
            "projection_hidden_size": 16,
            "image_token_id": "<|media_pad|>",
            "video_token_id": "<|video_place|>",
            "vision_start_token_id": "<|media_begin|>",
            "vision_end_token_id": "<|media_end|>",
        },
        {"image_processor_type": "Kimi_K25ImageProcessor", "patch_size": 4, "max_patches": 60},
        {
            "model_type": "deepseek_v3",
            "kv_lora_rank": 16,
            "q_lora_rank": 12,
            "qk_nope_head_dim": 12,
            "qk_rope_head_dim": 8,
            "v_head_dim": 10,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "moe_intermediate_size": 12,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
        _square_patches,
    ),
)
