"""GOT-OCR 2 and PP-Chart2Table: a picture is one square, whose patches two convolutions make sixteen times
fewer."""

from __future__ import annotations

from ...family import Checkpoint, MediaFamily, one_square


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    height, width = checkpoint.sides("vision_config.image_size")
    patch = checkpoint.size("vision_config.patch_size", 16)
    rows = _halved(_halved(height // patch)) * _halved(_halved(width // patch))
    return one_square(checkpoint, rows)


def _halved(size: int) -> int:
    return (size - 1) // 2 + 1
