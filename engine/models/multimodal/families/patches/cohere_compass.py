"""Cohere Compass: merged patches, whose encodings are added behind the decoder's first layers as well."""

from __future__ import annotations

from ...family import Checkpoint, MediaFamily
from ..merged_patches import family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    levels = checkpoint.value("vision_config.deepstack_visual_indexes", (8, 16, 24))
    return family_of(
        checkpoint,
        width="text_config.hidden_size",
        pixels=".rules.still_patches",
        num_levels=1 + len(levels),
    )
