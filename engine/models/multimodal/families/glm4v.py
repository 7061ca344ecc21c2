"""GLM-4V: merged patches, bounded by the pixels of a temporal patch."""

from __future__ import annotations

from ..family import Checkpoint, MediaFamily
from .merged_patches import family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    return family_of(checkpoint, width="text_config.hidden_size", pixels=".rules.glm_patches")
