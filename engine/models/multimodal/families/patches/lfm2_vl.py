"""LFM2-VL: patches of any grid, of which squares become a row. A large picture is tiles, each behind its
place, and the whole of it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ......protocols.engine.messages import Features, MediaItems
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id")
    start, end = checkpoint.known("<|image_start|>"), checkpoint.known("<|image_end|>")
    whole = checkpoint.known("<|img_thumbnail|>")
    merge = checkpoint.size("downsample_factor", 2)
    patch = checkpoint.size("vision_config.patch_size", 16)

    def text_of(media: MediaItems) -> str:
        if checkpoint.processor.get("use_image_special_tokens") is False:
            return token * len(media.items)
        text, before, column = start, 0, 0
        for item in media.items:
            assert item.features.grid is not None, "that is how the rule makes them"
            row = item.features.grid[0]
            column = column + 1 if row == before else 1
            mark = f"<|img_row_{row}_col_{column}|>" if row else whole if before else ""
            text, before = f"{text}{mark}{token}", row
        return text + end

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.split_patches", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=text_of, token=token)},
        num_rows=partial(_num_rows, merge),
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(None, checkpoint.size("vision_config.num_channels", 3) * patch**2),
        batches_any_grid=True,
    )


def _num_rows(merge: int, features: Features) -> int:
    return features.shape[0] // merge**2


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of as many patches, by their grids."""
    pixels = batch.stacked
    shown = batch.below([pixels.shape[1]] * len(pixels), pixels.shape[1])
    output = model.get_image_features(pixels, spatial_shapes=batch.grids[:, 1:], pixel_attention_mask=shown)
    return list(output.pooler_output)
