"""VideoLLaMA 3: patches of any grid, each of them a row, with positions as text has."""

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
    """See `family.py`. The image processor says how many patches on a side become a row."""
    merge = checkpoint.processor.get("merge_size", 1)
    if type(merge) is not int or merge < 1:
        raise checkpoint.fault("merge_size", merge, "a positive number")
    family = family_of(checkpoint, width="text_config.hidden_size", pixels=".rules.still_patches")
    channels = checkpoint.size("vision_config.num_channels", 3)
    patch = checkpoint.size("vision_config.patch_size", 16)
    return replace(
        in_line(family),
        num_rows=partial(_num_rows, merge),
        encode=partial(encode, merge),
        feature_shape=(None, channels * patch**2),
        merge_size=merge,
    )


def _num_rows(merge: int, features: Features) -> int:
    return features.shape[0] // merge**2


def encode(merge: int, model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures one behind the other, by their grids."""
    merges = batch.ids([merge] * len(batch.grids))
    output = model.get_image_features(batch.joined, image_grid_thw=batch.grids, image_merge_sizes=merges)
    return list(output.pooler_output)
