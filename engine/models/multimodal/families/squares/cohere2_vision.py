"""Command A Vision: a picture is tiles and the whole of it; a token ends each."""

from __future__ import annotations

from ......protocols.engine.messages import MediaItems
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, MediaFamily, Place, pooled


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id", "image_token_index")
    start, end = checkpoint.known("<|START_OF_IMG|>"), checkpoint.known("<|END_OF_IMG|>")
    line_end = checkpoint.known("<|IMG_LINE_BREAK|>")
    height, width = checkpoint.sides("vision_config.image_size")
    square = checkpoint.size("vision_config.patch_size", 16) * checkpoint.size("downsample_factor", 2)
    rows = (height // square) * (width // square)

    def text_of(media: MediaItems) -> str:
        return f"{start}{(token + line_end) * len(media.items)}{end}"

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.tiles", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=text_of, token=token)},
        num_rows=lambda _: rows,
        encode=pooled,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, height, width),
    )
