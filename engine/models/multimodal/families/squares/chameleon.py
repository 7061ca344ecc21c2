"""Chameleon: a picture is one square, of which a codebook makes tokens; their embeddings are its rows,
between two tokens."""

from __future__ import annotations

from ......protocols.engine.messages import MediaItems
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, MediaFamily, Place, pooled

_MULTIPLIERS = (1, 1, 2, 2, 4)
"""Of channels, in a codebook's encoder: each behind the first halves a picture's sides."""


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. It answers in text; it makes no pictures."""
    token = checkpoint.token("image_token_id", "vocabulary_map.<image>")
    start, end = checkpoint.known("<racm3:break>"), checkpoint.known("<eoss>")
    side = checkpoint.size("vq_config.resolution", 512)
    rows = (side >> (len(checkpoint.value("vq_config.channel_multiplier", _MULTIPLIERS)) - 1)) ** 2

    def text_of(media: MediaItems) -> str:
        return "".join(f"{start}{token}{end}" for _ in media.items)

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.squares", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=text_of, token=token)},
        num_rows=lambda _: rows,
        encode=pooled,
        row_width=checkpoint.size("hidden_size"),
        feature_shape=(3, side, side),
    )
