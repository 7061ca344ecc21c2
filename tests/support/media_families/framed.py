"""Families whose pictures are a square with a frame around them."""

from __future__ import annotations

from support.media_family import SIGLIP, SQUARE, TOWER, Family

FAMILIES = (
    Family(
        "deepseek_vl",
        "<image_placeholder>",
        ("<image_placeholder>",),
        {
            "vision_config": TOWER | SIGLIP | {"vision_use_head": False},
            "image_token_id": "<image_placeholder>",
        },
        {"image_processor_type": "DeepseekVLImageProcessor", "size": SQUARE},
    ),
)
