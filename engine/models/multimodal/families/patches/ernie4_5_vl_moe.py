"""ERNIE 4.5 VL: merged patches, whose rows have experts of their own."""

from __future__ import annotations

from dataclasses import replace

from ...family import Checkpoint, MediaFamily
from ..merged_patches import family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    family = family_of(checkpoint, width="text_config.hidden_size", pixels=".rules.still_patches")
    channels = checkpoint.size("vision_config.in_channels", 3)
    patch = checkpoint.size("vision_config.patch_size", 14)
    return replace(family, feature_shape=(None, channels * patch**2), media_mask="moe_mm_token_type_ids")
