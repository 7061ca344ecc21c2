"""More families whose pictures are patches of any grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sensorium.protocols.engine.messages import EncoderItem
from support.media_families.patches import (
    GLM_IDS,
    GLM_PIXELS,
    GLM_TOKENS,
    GLM_TOWER,
    MROPE,
    QWEN3_TOWER,
    QWEN_IDS,
    QWEN_PIXELS,
    QWEN_PLACE,
    QWEN_TOKENS,
)
from support.media_family import TOWER, Family, patches
from torch import Tensor


def _with_merges(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    found = patches(items, ids)
    del found["mm_token_type_ids"]
    return found | {"image_merge_sizes": torch.full((len(items),), 2)}


def _untyped(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    return {name: value for name, value in patches(items, ids).items() if name != "mm_token_type_ids"}


def _square_patches(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    found = patches(items, ids)
    return found | {"pixel_values": found["pixel_values"].view(-1, 3, 4, 4)}


def _channels_last(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    found = patches(items, ids)
    by_place = found["pixel_values"].view(-1, 3, 4, 4).permute(0, 2, 3, 1)
    return found | {"pixel_values": by_place.flatten(1)}


def _typed_experts(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    found = patches(items, ids)
    return found | {"moe_mm_token_type_ids": found["mm_token_type_ids"]}


_PLAIN_IDS = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
_WINDOW_TOWER = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "window_size": 16,
    "fullatt_block_indexes": [1],
}
_SMALL = {"shortest_edge": 8 * 8 * 2, "longest_edge": 8 * 8 * 24}
_MOE = {
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
_WHOLE = {"rope_parameters": MROPE["rope_parameters"] | {"partial_rotary_factor": 1.0}}
_GLM_PLACE = "<|begin_of_image|><|image|><|end_of_image|>"
FAMILIES = (
    Family(
        "glm4v_moe",
        _GLM_PLACE,
        GLM_TOKENS,
        GLM_IDS | {"vision_config": GLM_TOWER},
        GLM_PIXELS,
        {"model_type": "glm4v_moe_text", "head_dim": 8, **_MOE, **_WHOLE},
        patches,
    ),
    *(
        Family(
            model_type,
            _GLM_PLACE,
            GLM_TOKENS,
            GLM_IDS | {"vision_config": {"model_type": "glm4v_vision"} | GLM_TOWER},
            GLM_PIXELS | {"image_processor_type": processor},
            {"model_type": "glm4v_text", "head_dim": 8, **MROPE},
            patches,
        )
        for model_type, processor in (("glm46v", "Glm46VImageProcessor"), ("glmga", "GlmgaImageProcessor"))
    ),
    Family(
        "exaone4_5",
        QWEN_PLACE,
        QWEN_TOKENS,
        _PLAIN_IDS | {"vision_config": _WINDOW_TOWER | {"num_key_value_heads": 1}},
        QWEN_PIXELS,
        {"model_type": "exaone4", "sliding_window": 20, "sliding_window_pattern": 2, "head_dim": 8},
        _untyped,
    ),
    Family(
        "hyperclovax_vision_v2",
        QWEN_PLACE,
        QWEN_TOKENS,
        _PLAIN_IDS | {"vision_config": {"model_type": "qwen2_5_vl_vision"} | _WINDOW_TOWER},
        QWEN_PIXELS,
        {"model_type": "hyperclovax", "head_dim": 8},
        _untyped,
    ),
    Family(
        "lfm3_vl",
        QWEN_PLACE,
        QWEN_TOKENS,
        QWEN_IDS
        | {
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 3,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "patch_size": 4,
            },
            "projector_hidden_size": 24,
        },
        QWEN_PIXELS,
        {
            "model_type": "lfm3",
            "head_dim": 8,
            "sliding_window": 20,
            "num_hidden_layers": 3,
            "layer_types": ["conv", "sliding_attention", "full_attention"],
        },
        _untyped,
    ),
    Family(
        "video_llama_3",
        "<|image_pad|>",
        QWEN_TOKENS,
        _PLAIN_IDS
        | {
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "patch_size": 4,
            }
        },
        {
            "image_processor_type": "VideoLlama3ImageProcessor",
            "patch_size": 4,
            "merge_size": 2,
            "size": _SMALL,
        },
        {"model_type": "qwen2"},
        _with_merges,
    ),
    Family(
        "paddleocr_vl",
        QWEN_PLACE,
        QWEN_TOKENS,
        QWEN_IDS | {"vision_config": TOWER | {"patch_size": 4, "num_hidden_layers": 2}},
        {
            "image_processor_type": "PaddleOCRVLImageProcessor",
            "patch_size": 4,
            "merge_size": 2,
            "size": _SMALL,
        },
        {"model_type": "paddleocr_vl_text", "head_dim": 8, **MROPE},
        _square_patches,
    ),
    Family(
        "cohere_compass",
        QWEN_PLACE,
        QWEN_TOKENS,
        QWEN_IDS | {"vision_config": QWEN3_TOWER | {"depth": 3, "deepstack_visual_indexes": [0, 2]}},
        {
            "image_processor_type": "CohereCompassImageProcessor",
            "patch_size": 4,
            "merge_size": 2,
            "size": _SMALL,
        },
        {
            "model_type": "cohere_compass_text",
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 40,
            "rope_parameters": {
                "sliding_attention": {
                    "rope_type": "default",
                    "rope_theta": 10_000.0,
                    "mrope_section": [2, 1, 1],
                },
                "full_attention": None,
            },
        },
        patches,
    ),
    Family(
        "cosmos3_omni",
        QWEN_PLACE,
        QWEN_TOKENS,
        QWEN_IDS
        | {
            "vision_config": {"model_type": "qwen3_vl_vision"}
            | QWEN3_TOWER
            | {"depth": 3, "deepstack_visual_indexes": [0, 2]}
        },
        QWEN_PIXELS,
        {
            "model_type": "qwen3_vl_text",
            "head_dim": 8,
            "rope_parameters": MROPE["rope_parameters"] | {"mrope_interleaved": True},
        },
        patches,
    ),
    Family(
        "cosmos3_edge",
        QWEN_PLACE,
        QWEN_TOKENS,
        QWEN_IDS
        | {
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "patch_size": 4,
                "num_patches": 16,
            },
            "projector_hidden_size": 24,
        },
        {
            "image_processor_type": "Cosmos3EdgeImageProcessor",
            "patch_size": 4,
            "size": _SMALL,
        },
        {"model_type": "cosmos3_edge_text", "head_dim": 8, **MROPE},
        _channels_last,
    ),
    Family(
        "ernie4_5_vl_moe",
        "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        (
            "<|IMAGE_START|>",
            "<|IMAGE_PLACEHOLDER|>",
            "<|IMAGE_END|>",
            "<|VIDEO_START|>",
            "<|VIDEO_END|>",
            "<|video_pad|>",
        ),
        {
            "image_start_token_id": "<|IMAGE_START|>",
            "image_end_token_id": "<|IMAGE_END|>",
            "image_token_id": "<|IMAGE_PLACEHOLDER|>",
            "video_start_token_id": "<|VIDEO_START|>",
            "video_end_token_id": "<|VIDEO_END|>",
            "video_token_id": "<|video_pad|>",
            "vision_config": {
                "depth": 2,
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_heads": 2,
                "patch_size": 4,
                "spatial_merge_size": 2,
            },
        },
        {
            "image_processor_type": "Ernie4_5_VLMoeImageProcessor",
            "patch_size": 4,
            "merge_size": 2,
            "size": _SMALL,
        },
        {
            "model_type": "ernie4_5_vl_moe_text",
            "moe_intermediate_size": [16, 8],
            "moe_k": 2,
            "moe_num_experts": 4,
            "mlp_layer_types": ["dense", "sparse"],
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2]},
        },
        _typed_experts,
    ),
    Family(
        "dots3_note",
        "<|imgpad|>",
        ("<|imgpad|>", "<|video_pad|>", "<|audio_comp_pad|>"),
        {
            "image_token_id": "<|imgpad|>",
            "video_token_id": "<|video_pad|>",
            "audio_token_id": "<|audio_comp_pad|>",
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "patch_size": 4,
                "mlp_layer_types": ["dense", "dense"],
                "adapter_in_dim": 16,
                "adapter_out_dim": 32,
            },
            "audio_config": {
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "feature_size": 16,
                "downsample_hidden_size": 8,
                "adapter_input_size": 16,
                "adapter_out_dim": 32,
            },
        },
        QWEN_PIXELS | {"temporal_patch_size": 1},
        {
            "model_type": "dots3_note_text",
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "num_key_value_heads": 4,
            "index_head_dim": 16,
            "index_n_heads": 24,  # of fewer, scores tie at zero, and which are chosen is left to chance
            "index_topk": 64,
            "moe_intermediate_size": 16,
            "shared_experts_intermediate_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
        },
        _untyped,
    ),
)
