"""GOT-OCR 2 and PP-Chart2Table: a picture is one square, whose patches two convolutions make sixteen times
fewer."""

from __future__ import annotations

from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, MediaFamily, Place, one_each, pooled


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id", "image_token_index")
    height, width = checkpoint.sides("vision_config.image_size")
    patch = checkpoint.size("vision_config.patch_size", 16)
    rows = _halved(_halved(height // patch)) * _halved(_halved(width // patch))
    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.squares", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=lambda _: rows,
        encode=pooled,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, height, width),
    )


def _halved(size: int) -> int:
    return (size - 1) // 2 + 1
