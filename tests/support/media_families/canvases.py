"""Families whose pictures are tiles of a canvas."""

from __future__ import annotations

from support.media_family import SIDE, SQUARE, Family

FAMILIES = (
    Family(
        "llama4",
        "<|image|>",
        (
            *("<|image|>", "<|patch|>", "<|image_start|>", "<|image_end|>"),
            *("<|tile_x_separator|>", "<|tile_y_separator|>"),
        ),
        {
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": SIDE,
                "patch_size": SIDE // 4,
                "vision_output_dim": 24,
                "projector_input_dim": 24,
                "projector_output_dim": 24,
            },
            "boi_token_index": "<|image_start|>",
            "eoi_token_index": "<|image_end|>",
            "image_token_index": "<|patch|>",
        },
        {"image_processor_type": "Llama4ImageProcessorFast", "size": SQUARE, "max_patches": 4},
        {
            "model_type": "llama4_text",
            "head_dim": 8,
            "num_hidden_layers": 3,
            "intermediate_size_mlp": 48,
            "num_local_experts": 4,
            "interleave_moe_layer_step": 2,
            "no_rope_layers": [1, 1, 0],
            "attention_chunk_size": 32,
            "floor_scale": 8,
        },
    ),
)
