"""More families whose pictures are squares, or in a shape of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sensorium.protocols.engine.messages import EncoderItem
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
    stacked,
)
from torch import Tensor

_SAM = {
    "hidden_size": 16,
    "output_channels": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 2 * SIDE,
    "patch_size": SIDE // 4,
    "window_size": 2,
    "global_attn_indexes": [1],
    "mlp_dim": 24,
}
_CROPPED = {"size": {"shortest_edge": SIDE}, "crop_size": SQUARE}


def _images(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    return {"pixel_values_images": stacked(items, ids)["pixel_values"]}


FAMILIES = (
    Family(
        "cohere2_vision",
        "<|IMG_PATCH|>",
        ("<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>"),
        {
            "vision_config": TOWER | SIGLIP,
            "image_token_id": "<|IMG_PATCH|>",
            "downsample_factor": 2,
            "alignment_intermediate_size": 24,
        },
        {"image_processor_type": "Cohere2VisionImageProcessor", "size": SQUARE, "max_patches": 3},
        {"model_type": "cohere2", "sliding_window": 40},
    ),
    Family(
        "qianfan_ocr",
        "<IMG_CONTEXT>",
        ("<img>", "</img>", "<IMG_CONTEXT>"),
        {
            "vision_config": TOWER | {"image_size": [SIDE] * 2, "patch_size": [SIDE // 4] * 2},
            "image_token_id": "<IMG_CONTEXT>",
        },
        {"image_processor_type": "GotOcr2ImageProcessor", "size": SQUARE, "max_patches": 4},
        {"model_type": "qwen3", "head_dim": 8},
    ),
    *(
        Family(
            model_type,
            "<img><imgpad></img>",
            ("<img>", "</img>", "<imgpad>"),
            {"vision_config": {"model_type": f"{model_type}_vision"} | _SAM, "image_token_id": "<imgpad>"},
            {"image_processor_type": processor, "size": {"height": 2 * SIDE, "width": 2 * SIDE}},
            {"model_type": "qwen2"},
        )
        for model_type, processor in (
            ("got_ocr2", "GotOcr2ImageProcessor"),
            ("pp_chart2table", "PPChart2TableImageProcessor"),
        )
    ),
    Family(
        "llava_next_video",
        "<image>",
        ("<image>", "<video>"),
        {
            "vision_config": TOWER | CLIP,
            "image_token_index": "<image>",
            "video_token_index": "<video>",
            "image_grid_pinpoints": PINPOINTS,
        },
        {"image_processor_type": "LlavaNextImageProcessor", **_CROPPED, "image_grid_pinpoints": PINPOINTS},
        inputs=any_resolution,
    ),
    Family(
        "video_llava",
        "<image>",
        ("<image>", "<video>"),
        {"vision_config": TOWER | CLIP, "image_token_index": "<image>", "video_token_index": "<video>"},
        {"image_processor_type": "VideoLlavaImageProcessor", **_CROPPED},
        inputs=_images,
    ),
    Family(
        "lighton_ocr",
        "<|image_pad|>",
        ("<|image_pad|>",),
        {
            "vision_config": TOWER | {"model_type": "pixtral", "head_dim": 8, "image_size": 64},
            "image_token_id": "<|image_pad|>",
        },
        {
            "image_processor_type": "PixtralImageProcessor",
            "size": {"longest_edge": 2 * SIDE},
            "patch_size": SIDE // 2,
        },
        {"model_type": "qwen3", "head_dim": 8},
        any_shape,
    ),
    Family(
        "janus",
        "<image_placeholder>",
        ("<image_placeholder>", "<begin_of_image>", "<end_of_image>"),
        {
            "vision_config": {
                "hidden_size": 16,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": SIDE,
                "patch_size": SIDE // 4,
                "projection_dim": 32,
                "num_image_tokens": 16,
            },
            "vq_config": {
                "embed_dim": 4,
                "num_embeddings": 16,
                "latent_channels": 32,
                "base_channels": 32,
                "channel_multiplier": [1, 1],
                "num_res_blocks": 1,
                "projection_dim": 32,
                "image_token_embed_dim": 32,
            },
            "image_token_id": "<image_placeholder>",
        },
        {"image_processor_type": "JanusImageProcessor", "size": SQUARE},
    ),
)
