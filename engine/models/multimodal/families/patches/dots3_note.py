"""Dots 3 Note: patches of single pictures, of which squares become a row, with positions as text has."""

from __future__ import annotations

from dataclasses import replace

from ...family import Checkpoint, MediaFamily
from ..merged_patches import family_of
from .in_line import in_line


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. It is served with pictures, not with the audio that it hears too."""
    family = in_line(family_of(checkpoint, width="text_config.hidden_size"))
    channels = checkpoint.size("vision_config.num_channels", 3)
    patch = checkpoint.size("vision_config.patch_size", 14)
    return replace(family, feature_shape=(None, channels * patch**2))
