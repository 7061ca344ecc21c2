"""LLaVA 1.5: a picture is one square, each patch of it a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....protocols.engine.messages import MediaItems
from ..prompts import IMAGES, MediaRules
from .family import Checkpoint, EncodeBatch, MediaFamily, Place


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id", "image_token_index")
    side, patch = checkpoint.size("vision_config.image_size"), checkpoint.size("vision_config.patch_size")
    rows = (side // patch) ** 2
    if checkpoint.value("vision_feature_select_strategy", "default") == "full":
        rows += 1  # that of the class token
    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".squares", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=_text(token), token=token)},
        num_rows=lambda _: rows,
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, side, side),
    )


def _text(token: str) -> Any:
    def text_of(media: MediaItems) -> str:
        return token * len(media.items)

    return text_of


def encode(model: Any, batch: EncodeBatch) -> Sequence[Any]:  # noqa: ANN401 (of transformers)
    """One picture after the other, whatever the tower."""
    return list(model.get_image_features(batch.stacked).pooler_output)
