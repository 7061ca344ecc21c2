"""Gemma 3: a picture is one square, whose rows attend to each other in both directions."""

from __future__ import annotations

from .....protocols.engine.messages import MediaItems
from ...prompts import IMAGES, MediaRules
from ..family import Checkpoint, MediaFamily, Place, pooled


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id", "image_token_index")
    start = checkpoint.token("boi_token_id", "boi_token_index")
    end = checkpoint.token("eoi_token_id", "eoi_token_index")
    height, width = checkpoint.sides("vision_config.image_size")
    rows = checkpoint.size("mm_tokens_per_image", 256)

    def text_of(media: MediaItems) -> str:
        return "".join(f"\n\n{start}{token}{end}\n\n" for _ in media.items)

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.squares", pixel_kinds=IMAGES),
        places={"image": Place(written=start, text_of=text_of, token=token)},
        num_rows=lambda _: rows,
        encode=pooled,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, height, width),
        sees_whole_items=True,
    )
