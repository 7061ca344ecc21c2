"""LightOnOCR: a picture in its own shape, of whose patches squares become a row; no tokens end its lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place, one_each


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id")
    square = checkpoint.size("vision_config.patch_size", 14) * checkpoint.size("spatial_merge_size", 2)
    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.any_shape", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=lambda features: (features.shape[1] // square) * (features.shape[2] // square),
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, None, None),
    )


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of one size."""
    pixels = batch.stacked
    sizes = [tuple(pixels.shape[-2:])] * len(pixels)
    return list(model.get_image_features(pixels, image_sizes=sizes).pooler_output)
