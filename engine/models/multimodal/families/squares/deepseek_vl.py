"""DeepSeek-VL: a picture is one square, with a frame around it; each patch is a row."""

from __future__ import annotations

from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, MediaFamily, Place, one_each, pooled


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id")
    height, width = checkpoint.sides("vision_config.image_size")
    patch = checkpoint.size("vision_config.patch_size")
    rows = (height // patch) * (width // patch)
    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.framed_square", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=lambda _: rows,
        encode=pooled,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, height, width),
    )
