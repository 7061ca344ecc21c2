"""LLaVA and what followed it."""

from __future__ import annotations

from support.media_family import (
    CLIP,
    PINPOINTS,
    SIDE,
    SIGLIP,
    SQUARE,
    TOWER,
    Family,
    any_resolution,
    any_shape,
)

FAMILIES = (
    Family(
        "llava_next",
        "<image>",
        ("<image>",),
        {
            "vision_config": TOWER | CLIP,
            "image_token_id": "<image>",
            "image_grid_pinpoints": PINPOINTS,
        },
        {
            "image_processor_type": "LlavaNextImageProcessor",
            "size": {"shortest_edge": SIDE},
            "crop_size": SQUARE,
            "image_grid_pinpoints": PINPOINTS,
        },
        {"model_type": "mistral", "sliding_window": None},
        any_resolution,
    ),
    Family(
        "llava_onevision",
        "<image>",
        ("<image>", "<video>"),
        {
            "vision_config": TOWER | SIGLIP | {"vision_use_head": False},
            "image_token_id": "<image>",
            "video_token_id": "<video>",
            "image_grid_pinpoints": PINPOINTS,
            "vision_aspect_ratio": "anyres_max_2",
        },
        {
            "image_processor_type": "LlavaOnevisionImageProcessor",
            "size": SQUARE,
            "image_grid_pinpoints": PINPOINTS,
        },
        {"model_type": "qwen2"},
        any_resolution,
    ),
    Family(
        "mistral3",
        "[IMG]",
        ("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        {
            "vision_config": TOWER | {"model_type": "pixtral", "head_dim": 8, "image_size": 64},
            "image_token_id": "[IMG]",
            "vision_feature_layer": -1,
        },
        {
            "image_processor_type": "PixtralImageProcessor",
            "size": {"longest_edge": 2 * SIDE},
            "patch_size": SIDE // 2,
        },
        {"model_type": "mistral", "sliding_window": None, "head_dim": 8},
        any_shape,
    ),
    Family(
        "llava",
        "[IMG]",
        ("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        {
            "vision_config": TOWER | {"model_type": "pixtral", "head_dim": 8, "image_size": 64},
            "image_token_id": "[IMG]",
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
        {
            "image_processor_type": "PixtralImageProcessor",
            "size": {"longest_edge": 2 * SIDE},
            "patch_size": SIDE // 4,
        },
        {"model_type": "mistral", "sliding_window": None, "head_dim": 8},
        any_shape,
    ),
    Family(
        "vipllava",
        "<image>",
        ("<image>",),
        {
            "vision_config": TOWER | CLIP,
            "image_token_id": "<image>",
            "vision_feature_layer": [-1, -2],
        },
        {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": SIDE},
            "crop_size": SQUARE,
        },
    ),
    Family(
        "llava",
        "<image>\n",
        ("<image>",),
        {"vision_config": TOWER | CLIP, "image_token_id": "<image>"},
        {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": SIDE},
            "crop_size": SQUARE,
        },
    ),
)
