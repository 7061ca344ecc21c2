"""LLaVA-OneVision: as LLaVA-NeXT, with fewer rows of a large picture. Each picture of a prompt is looked
at as if it were the only one."""

from __future__ import annotations

import re

from ..family import Checkpoint, MediaFamily
from .llava_next import family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    ratio = checkpoint.value("vision_aspect_ratio", "anyres_max_9")
    found = re.fullmatch(r"anyres_max_(\d{1,4})", str(ratio))
    if found is None:
        raise checkpoint.fault("vision_aspect_ratio", ratio, "anyres_max_ and a number")
    return family_of(checkpoint, most=int(found[1]))
