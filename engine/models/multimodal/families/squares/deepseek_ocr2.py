"""DeepSeek-OCR 2: a picture is tiles and the whole of it, each of which a fixed number of queries looks at; a
row ends it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ......protocols.engine.messages import Features
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place, one_each

_FEW, _MANY = 144, 256
"""Queries, of as many patches at most and of more: the architecture has no others."""


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id")
    patch = checkpoint.size("vision_config.sam_config.patch_size", 16)

    def num_rows(features: Features) -> int:
        height, width = (_halved(_halved(side // patch)) for side in features.shape[1:])
        return (_FEW if height * width <= _FEW else _MANY) + is_whole(features)

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.documents.views", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=num_rows,
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, None, None),
        batches_any_grid=True,
    )


def is_whole(features: Features) -> bool:
    """Whether an item is the whole picture, and no tile of it."""
    assert features.grid is not None, "that is how the rule makes them"
    return features.grid[1] == 0


def _halved(size: int) -> int:
    return (size - 1) // 2 + 1


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Each as the whole picture of a prompt; behind tiles no row ends it."""
    pictures = model.get_image_features(batch.stacked).pooler_output
    for rows, line in zip(pictures, batch.grids[:, 1].tolist(), strict=True):
        yield rows[:-1] if line else rows
