"""Families whose pictures are patches of any grid, of which squares become one row: Qwen2-VL and its kin.

Rows lie on three axes of positions, as those of Qwen3-VL do.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from .....protocols.engine.messages import Features
from ...prompts import IMAGES, MediaRules
from ...qwen3_vl.positions import rotary_positions
from ..family import Checkpoint, EncodeBatch, MediaFamily, Place, one_each


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`; Qwen2-VL, Qwen2.5-VL."""
    return family_of(checkpoint, width="text_config.hidden_size")


def family_of(
    checkpoint: Checkpoint, *, width: str, pixels: str = ".merged_patches", num_levels: int = 1
) -> MediaFamily:
    """One with such a rule of pixels; `width` is where the config has that of its decoder."""
    token = checkpoint.token("image_token_id")
    vision = "vision_config."
    merge = checkpoint.size(f"{vision}spatial_merge_size", 2)
    patch = checkpoint.size(f"{vision}patch_size", 14)
    channels = checkpoint.size(f"{vision}in_channels", checkpoint.size(f"{vision}in_chans", 3))
    depth = checkpoint.size(f"{vision}temporal_patch_size", 2)
    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=pixels, pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=partial(_num_rows, merge),
        encode=encode,
        row_width=num_levels * checkpoint.size(width),
        feature_shape=(None, channels * depth * patch**2),
        positions=rotary_positions,
        rotary_axes=3,
        merge_size=merge,
        batches_any_grid=True,
    )


def _num_rows(merge: int, features: Features) -> int:
    return features.shape[0] // merge**2


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures one behind the other, by their grids."""
    output = model.get_image_features(batch.joined, image_grid_thw=batch.grids)
    levels = getattr(output, "deepstack_features", None)
    return list(zip(output.pooler_output, *levels, strict=True)) if levels else list(output.pooler_output)
