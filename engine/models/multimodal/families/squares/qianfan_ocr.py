"""Qianfan-OCR: pictures as InternVL has them; no videos."""

from __future__ import annotations

from dataclasses import replace

from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, MediaFamily
from .. import internvl


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    family = internvl.open_family(checkpoint)
    return replace(
        family,
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.tiles", pixel_kinds=IMAGES),
        places={"image": family.places["image"]},
    )
