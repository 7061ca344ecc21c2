"""PaddleOCR-VL: patches in order of their lines, of which squares become a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from ...family import Checkpoint, EncodeBatch, MediaFamily
from ..merged_patches import family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    family = family_of(checkpoint, width="text_config.hidden_size", pixels=".rules.still_patches")
    channels = checkpoint.size("vision_config.num_channels", 3)
    patch = checkpoint.size("vision_config.patch_size", 14)
    return replace(family, encode=partial(encode, channels, patch), feature_shape=(None, channels * patch**2))


def encode(channels: int, patch: int, model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures one behind the other, by their grids."""
    patches = batch.joined.view(-1, channels, patch, patch)
    return list(model.get_image_features(patches, image_grid_thw=batch.grids).pooler_output)
