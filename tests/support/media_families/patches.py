"""Families whose pictures are patches of any grid."""

from __future__ import annotations

from typing import Any

from support.media_family import Family, patches
from support.recurrent_families import FAMILIES as RECURRENT

MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]}}
QWEN_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
QWEN_IDS = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
QWEN_PLACE = "<|vision_start|><|image_pad|><|vision_end|>"
QWEN_PIXELS = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 4,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "size": {"shortest_edge": 8 * 8 * 2, "longest_edge": 8 * 8 * 24},
}
QWEN3_TOWER = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "num_position_embeddings": 36,
}
GLM_TOKENS = ("<|begin_of_image|>", "<|end_of_image|>", "<|image|>", "<|video|>")
GLM_IDS = {
    "image_token_id": "<|image|>",
    "video_token_id": "<|video|>",
    "image_start_token_id": "<|begin_of_image|>",
    "image_end_token_id": "<|end_of_image|>",
}
GLM_TOWER = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
    "image_size": 16,
    "spatial_merge_size": 2,
}
GLM_PIXELS = {
    "image_processor_type": "Glm4vImageProcessor",
    "patch_size": 4,
    "merge_size": 2,
    "size": {"shortest_edge": 8 * 8 * 4, "longest_edge": 8 * 8 * 48},
}


def _of_text(model_type: str) -> dict[str, Any]:
    """The text config of one some of whose layers keep states."""
    return {"model_type": f"{model_type}_text", **RECURRENT[f"{model_type}_text"]}


FAMILIES = (
    Family(
        "glm4v",
        "<|begin_of_image|><|image|><|end_of_image|>",
        GLM_TOKENS,
        GLM_IDS | {"vision_config": GLM_TOWER},
        GLM_PIXELS,
        {"model_type": "glm4v_text", "head_dim": 8, **MROPE},
        patches,
    ),
    *(
        Family(
            model_type,
            QWEN_PLACE,
            QWEN_TOKENS,
            QWEN_IDS | {"vision_config": QWEN3_TOWER},
            QWEN_PIXELS,
            _of_text(model_type)
            | {
                "rope_parameters": MROPE["rope_parameters"] | {"partial_rotary_factor": 1.0},
                "vocab_size": 400,
            },
            patches,
        )
        for model_type in ("qwen3_5", "qwen3_5_moe")
    ),
    *(
        Family(
            model_type,
            "<|begin_of_image|><|image|><|end_of_image|>",
            GLM_TOKENS,
            GLM_IDS | {"vision_config": GLM_TOWER},
            GLM_PIXELS,
            {"model_type": f"{model_type}_text", "head_dim": 8, **MROPE},
            patches,
        )
        for model_type in ("glm_ocr",)
    ),
    Family(
        "qwen2_vl",
        QWEN_PLACE,
        QWEN_TOKENS,
        QWEN_IDS
        | {
            "vision_config": {
                "depth": 2,
                "embed_dim": 16,
                "hidden_size": 32,
                "num_heads": 2,
                "mlp_ratio": 2,
                "patch_size": 4,
                "spatial_merge_size": 2,
            }
        },
        QWEN_PIXELS,
        {"model_type": "qwen2_vl_text", **MROPE},
        patches,
    ),
    Family(
        "qwen2_5_vl",
        QWEN_PLACE,
        QWEN_TOKENS,
        QWEN_IDS
        | {
            "vision_config": {
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
        },
        QWEN_PIXELS,
        {"model_type": "qwen2_5_vl_text", **MROPE},
        patches,
    ),
    Family(
        "qwen3_vl_moe",
        QWEN_PLACE,
        QWEN_TOKENS,
        QWEN_IDS
        | {
            "vision_config": {
                "depth": 3,
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_heads": 2,
                "out_hidden_size": 32,
                "patch_size": 4,
                "spatial_merge_size": 2,
                "num_position_embeddings": 36,
                "deepstack_visual_indexes": [0, 2],
            }
        },
        QWEN_PIXELS,
        {
            "model_type": "qwen3_vl_moe_text",
            "head_dim": 8,
            "moe_intermediate_size": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": MROPE["rope_parameters"] | {"mrope_interleaved": True},
        },
        patches,
    ),
)
