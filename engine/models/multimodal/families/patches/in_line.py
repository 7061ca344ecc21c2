"""Families whose pictures are patches of any grid, of which squares become one row, as those of Qwen2-VL, but
whose rows have positions as text has: EXAONE 4.5, HyperCLOVA X Vision, LFM 3 VL."""

from __future__ import annotations

from dataclasses import replace

from .....planning.positions import plain_positions
from ...family import Checkpoint, MediaFamily
from ..merged_patches import family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    return in_line(family_of(checkpoint, width="text_config.hidden_size"))


def in_line(family: MediaFamily) -> MediaFamily:
    """A family of patches with the positions of text."""
    return replace(family, positions=plain_positions, rotary_axes=1)
