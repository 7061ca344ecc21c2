"""Janus: a picture is one square, each patch of it a row, between two tokens."""

from __future__ import annotations

from ......protocols.engine.messages import MediaItems
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, MediaFamily, Place, pooled


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. It answers in text; it makes no pictures."""
    token = checkpoint.token("image_token_id")
    start, end = checkpoint.known("<begin_of_image>"), checkpoint.known("<end_of_image>")
    height, width = checkpoint.sides("vision_config.image_size")
    patch = checkpoint.size("vision_config.patch_size", 16)
    rows = (height // patch) * (width // patch)

    def text_of(media: MediaItems) -> str:
        return "".join(f"{start}{token}{end}" for _ in media.items)

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.framed_square", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=text_of, token=token)},
        num_rows=lambda _: rows,
        encode=pooled,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, height, width),
    )
