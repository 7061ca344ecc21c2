"""InternVL: a picture is tiles and the whole of it, each with the same number of rows."""

from __future__ import annotations

from .....protocols.engine.messages import MediaItems
from ...prompts import IMAGES, MediaRules
from ..family import Checkpoint, MediaFamily, Place, pooled


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id")
    start, end = checkpoint.known("<img>"), checkpoint.known("</img>")
    height, width = checkpoint.sides("vision_config.image_size")
    patch_height, patch_width = checkpoint.sides("vision_config.patch_size")
    ratio = float(checkpoint.value("downsample_ratio", 0.5))
    rows = int((height // patch_height) * (width // patch_width) * ratio**2)

    def text_of(media: MediaItems) -> str:
        return f"{start}{token * len(media.items)}{end}"

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.tiles", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=text_of, token=token)},
        num_rows=lambda _: rows,
        encode=pooled,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, height, width),
    )
