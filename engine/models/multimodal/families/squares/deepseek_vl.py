"""DeepSeek-VL: a picture is one square, with a frame around it; each patch is a row."""

from __future__ import annotations

from ...family import Checkpoint, MediaFamily, one_square


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    height, width = checkpoint.sides("vision_config.image_size")
    patch = checkpoint.size("vision_config.patch_size")
    rows = (height // patch) * (width // patch)
    return one_square(checkpoint, rows, ".rules.framed_square")
