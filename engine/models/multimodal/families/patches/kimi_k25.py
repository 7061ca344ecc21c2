"""Kimi K2.5: patches in order of their lines, of which squares become a row; positions as text has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from ......protocols.engine.messages import Features
from ...family import Checkpoint, EncodeBatch, MediaFamily
from ..merged_patches import family_of
from .in_line import in_line


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    family = family_of(checkpoint, width="text_config.hidden_size", pixels=".rules.padded_patches")
    patch = checkpoint.size("vision_config.patch_size", 14)
    kernel = checkpoint.value("vision_config.merge_kernel_size", [2, 2])
    if not isinstance(kernel, list) or len(set(kernel)) != 1 or type(kernel[0]) is not int or kernel[0] < 1:
        raise checkpoint.fault("vision_config.merge_kernel_size", kernel, "two equal positive numbers")
    return replace(
        in_line(family),
        num_rows=partial(_num_rows, kernel[0]),
        encode=partial(encode, patch),
        feature_shape=(None, 3 * patch**2),
        merge_size=kernel[0],
    )


def _num_rows(merge: int, features: Features) -> int:
    return features.shape[0] // merge**2


def encode(patch: int, model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures one behind the other, by their grids."""
    patches = batch.joined.view(-1, 3, patch, patch)
    return list(model.get_image_features(patches, image_grid_thw=batch.grids).pooler_output)
