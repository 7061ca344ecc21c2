"""Llama 4: a picture is tiles, with marks between them, and then the whole picture behind another mark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ......protocols.engine.messages import MediaItems
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token, place = checkpoint.token("image_token_id", "image_token_index"), checkpoint.known("<|image|>")
    start, end = checkpoint.known("<|image_start|>"), checkpoint.known("<|image_end|>")
    between, line_end = checkpoint.known("<|tile_x_separator|>"), checkpoint.known("<|tile_y_separator|>")
    height, width = checkpoint.sides("vision_config.image_size")
    patch = checkpoint.size("vision_config.patch_size", 14)
    ratio = float(checkpoint.value("vision_config.pixel_shuffle_ratio", 0.5))
    if height != width or not ratio > 0:
        raise checkpoint.fault("vision_config.image_size", [height, width], "equal sides")
    rows = int((height // patch) ** 2 * ratio**2)

    def text_of(media: MediaItems) -> str:
        text, before = start, 0
        for item in media.items:
            assert item.features.grid is not None, "that is how the rule makes them"
            row = item.features.grid[1]
            if before:
                text += between if row == before else line_end
            text += token if row else place + token
            before = row
        return text + end

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.canvas_tiles", pixel_kinds=IMAGES),
        places={"image": Place(written=place, text_of=text_of, token=token)},
        num_rows=lambda _: rows,
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, height, width),
    )


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Tiles of one size."""
    features = model.get_image_features(batch.stacked).last_hidden_state
    return list(model.multi_modal_projector(features))
