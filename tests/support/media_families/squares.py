"""Families whose pictures are squares, all of one size."""

from __future__ import annotations

from support.media_family import SIDE, SIGLIP, SQUARE, TOWER, Family, seen_whole, squares_of_a_prompt

FAMILIES = (
    Family(
        "aya_vision",
        "<image>",
        ("<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "TILE_GLOBAL", "TILE_1", "TILE_2"),
        {
            "vision_config": TOWER | SIGLIP,
            "image_token_id": "<|IMG_PATCH|>",
            "vision_feature_select_strategy": "full",
            "downsample_factor": 2,
            "adapter_layer_norm_eps": 1e-6,
        },
        {"image_processor_type": "GotOcr2ImageProcessor", "size": SQUARE, "max_patches": 3},
        {"model_type": "cohere2", "sliding_window": 40},
    ),
    Family(
        "gemma3",
        "<start_of_image>",
        ("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
        {
            "vision_config": TOWER | SIGLIP | {"vision_use_head": False},
            "boi_token_index": "<start_of_image>",
            "eoi_token_index": "<end_of_image>",
            "image_token_id": "<image_soft_token>",
            "mm_tokens_per_image": 16,
        },
        {"image_processor_type": "Gemma3ImageProcessor", "size": SQUARE, "do_pan_and_scan": None},
        {
            "model_type": "gemma3_text",
            "head_dim": 8,
            "num_hidden_layers": 3,
            "sliding_window": 12,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        seen_whole,
    ),
    Family(
        "internvl",
        "<IMG_CONTEXT>",
        ("<img>", "</img>", "<IMG_CONTEXT>"),
        {
            "vision_config": TOWER
            | {"model_type": "internvl_vision", "image_size": [SIDE] * 2, "patch_size": [SIDE // 4] * 2},
            "image_token_id": "<IMG_CONTEXT>",
        },
        {"image_processor_type": "GotOcr2ImageProcessorFast", "size": SQUARE, "max_patches": 4},
        {"model_type": "qwen2"},
    ),
    Family(
        "smolvlm",
        "<image>",
        ("<image>", "<fake_token_around_image>", "<global-img>", "<row_1_col_1>", "<row_1_col_2>"),
        {"vision_config": TOWER | {"model_type": "smolvlm_vision"}, "image_token_id": "<image>"},
        {
            "image_processor_type": "SmolVLMImageProcessor",
            "size": {"longest_edge": 2 * SIDE},
            "max_image_size": {"longest_edge": SIDE},
        },
        inputs=squares_of_a_prompt,
    ),
    Family(
        "idefics3",
        "<image>",
        ("<image>", "<fake_token_around_image>", "<global-img>"),
        {"vision_config": TOWER | {"model_type": "idefics3_vision"}, "image_token_id": "<image>"},
        {
            "image_processor_type": "Idefics3ImageProcessor",
            "size": {"longest_edge": 2 * SIDE},
            "max_image_size": {"longest_edge": SIDE},
        },
        inputs=squares_of_a_prompt,
    ),
)
