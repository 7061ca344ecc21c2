"""Qwen3.5, dense and with experts: merged patches, videos as of Qwen3-VL."""

from __future__ import annotations

from ..family import Checkpoint, MediaFamily
from .merged_patches import behind_times, family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    return family_of(checkpoint, width="text_config.hidden_size", video=behind_times(checkpoint))
