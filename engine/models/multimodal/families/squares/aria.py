"""Aria: a picture is in the corner of a square; queries of its patches, as many as the square's size has,
become rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place, one_each

_QUERIES = {"1225": 128, "4900": 256}
"""By the number of patches, where a config does not say."""


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id", "image_token_index")
    patch = checkpoint.size("vision_config.patch_size", 32)
    field = "projector_patch_to_query_dict"
    found = checkpoint.value(field, _QUERIES)
    if not isinstance(found, dict) or not all(
        str(patches).isdecimal() and type(queries) is int for patches, queries in found.items()
    ):
        raise checkpoint.fault(field, found, "an object of numbers of queries by numbers of patches")
    rows = {int(patches): queries for patches, queries in found.items()}
    side = checkpoint.processor.get("max_image_size", 980)
    if type(side) is not int or (side // patch) ** 2 not in rows:
        raise checkpoint.fault(field, found, f"one with the patches of a square of {side} pixels")
    number: int = rows[(side // patch) ** 2]
    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.documents.framed_crops", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=lambda _: number,
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, side, side),
        batches_any_grid=True,
    )


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Squares, of which each shows something in its corner."""
    pixels = batch.stacked
    _, heights, widths = batch.grids.T.tolist()
    mask = batch.below(heights, pixels.shape[-1])[:, :, None] & batch.below(widths, pixels.shape[-1])[:, None]
    output = model.get_image_features(
        pixels, pixel_mask=mask, vision_feature_layer=model.config.vision_feature_layer
    )
    return list(output.pooler_output)
