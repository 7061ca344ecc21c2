"""Idefics 3 and SmolVLM: a picture is rows of squares, each behind its place, and the whole of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .....protocols.engine.messages import MediaItems
from ...prompts import IMAGES, MediaRules
from ..family import Checkpoint, EncodeBatch, MediaFamily, Place


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token, around = checkpoint.token("image_token_id"), checkpoint.known("<fake_token_around_image>")
    whole = checkpoint.known("<global-img>")
    side = checkpoint.size("vision_config.image_size")
    rows = (side // checkpoint.size("vision_config.patch_size")) ** 2 // checkpoint.size(
        "scale_factor", 2
    ) ** 2

    def text_of(media: MediaItems) -> str:
        text, row = "", 0
        for item in media.items:
            assert item.features.grid is not None, "that is how the rule makes them"
            _, new_row, column = item.features.grid
            text += "\n" if row and new_row != row else ""
            row = new_row
            text += f"{around}<row_{row}_col_{column}>{token}" if row else ""
        return f"{text}\n{around}{whole}{token}{around}" if text else f"{around}{whole}{token}{around}"

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.split_squares", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=text_of, token=token)},
        num_rows=lambda _: rows,
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, side, side),
    )


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Each square as the one picture of a prompt."""
    return list(model.get_image_features(batch.stacked[:, None]).pooler_output)
