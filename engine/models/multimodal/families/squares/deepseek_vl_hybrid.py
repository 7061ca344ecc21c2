"""DeepSeek-VL with two towers: a picture is a large and a small square, with a frame around it; each patch of
the small one is a row."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place, one_each


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id")
    height, width = checkpoint.sides("vision_config.image_size")
    large = checkpoint.size("high_res_vision_config.image_size", 1024)
    if height != width:
        raise checkpoint.fault("vision_config.image_size", [height, width], "equal sides")
    rows = (height // checkpoint.size("vision_config.patch_size")) ** 2
    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.documents.two_squares", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=lambda _: rows,
        encode=partial(encode, large, height),
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3 * (large**2 + height**2),),
    )


def encode(large: int, small: int, model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures, of which each is a large and a small square."""
    both = batch.stacked.split([3 * large**2, 3 * small**2], dim=1)
    high, low = (each.unflatten(1, (3, side, side)) for each, side in zip(both, (large, small), strict=True))
    return list(model.get_image_features(low, high).pooler_output)
