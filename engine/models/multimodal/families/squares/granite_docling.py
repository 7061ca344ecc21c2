"""Granite Docling: a page is rows of tiles, each behind its place, and the whole of it; encodings are added
behind the decoder's first layers as well."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ......protocols.engine.messages import MediaItems
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place

_LEVELS = (3, 7, 10)
"""Layers of the tower whose rows are added, where a config does not say."""


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token, around = checkpoint.token("image_token_id"), checkpoint.known("<fake_token_around_image>")
    whole = checkpoint.known("<global-img>")
    height, width = checkpoint.sides("vision_config.image_size")
    if height != width:
        raise checkpoint.fault("vision_config.image_size", [height, width], "equal sides")
    is_fine = bool(checkpoint.processor.get("fine_route", False))
    if is_fine and not checkpoint.value("vision_config.use_fine_route", default=True):
        raise checkpoint.fault("vision_config.use_fine_route", False, "true, as the processor's fine_route")
    scale = checkpoint.size("vision_config.scale_factor", 4) // (2 if is_fine else 1)
    rows = (height // checkpoint.size("vision_config.patch_size", 16)) ** 2 // scale**2
    levels = checkpoint.value("vision_config.deepstack_visual_indexes", _LEVELS)

    def text_of(media: MediaItems) -> str:
        text, last = "", 1
        for item in media.items:
            assert item.features.grid is not None, "that is how the rule makes them"
            _, row, column = item.features.grid
            if row == 0:
                return f"{text}\n\n{around}{whole}{token}{around}"
            text += "\n" if row != last else ""
            text += f"{around}<row_{row}_col_{column}>{token}"
            last = row
        return f"{text}\n"

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.documents.page_tiles", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=text_of, token=token)},
        num_rows=lambda _: rows,
        encode=partial(encode, is_fine),
        row_width=(1 + len(levels)) * checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, height, width),
        batches_any_grid=True,
    )


def encode(is_fine: bool, model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401
    """Each tile as the one page of a prompt."""
    pixels = batch.stacked
    every = batch.below([1] * len(pixels), 1)
    output = model.get_image_features(
        pixels[:, None], pixel_attention_mask=every, tile_fine_mask=every[:, 0] if is_fine else None
    )
    return zip(output.pooler_output, *output.deepstack_features, strict=True)
