"""GLM-4.5V, GLM-4.6V and GLM-GA: pictures as GLM-4V has them; no videos."""

from __future__ import annotations

from ...family import Checkpoint, MediaFamily
from ..merged_patches import family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    return family_of(checkpoint, width="text_config.hidden_size", pixels=".rules.glm_patches")
