"""Merged patches, bounded by the pixels of a whole temporal patch: the rule of GLM-4V.

Equal to what transformers' `Glm4vImageProcessorPil` makes of one picture; frames of videos have the sizes of
its `Glm4vVideoProcessor`, and are two a second of up to 300 s.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from ..config import CLIP_MEAN, CLIP_STD, VisionConfig, read_pixels, read_video, video_fields
from ..merged_patches import MergedPatches
from .still_rule import image_fields

_KINDS: Final = {"Glm4vImageProcessor": None, "Glm46VImageProcessor": None, "GlmgaImageProcessor": None}
_TOKEN: Final = 28 * 28
_LEAST: Final = 112 * 112
_MOST_FRAMES: Final = 600


def open_rule(folder: Path) -> MergedPatches:
    """See `pixel_rule.open_rule`."""
    fields, clips = image_fields(folder), video_fields(folder)
    fields.kind(_KINDS)
    if fields.integer("patch_expand_factor", 1) != 1:
        raise fields.fault("patch_expand_factor", "1")
    image = read_pixels(fields, 14, _LEAST, 15_000 * _TOKEN, CLIP_MEAN, CLIP_STD, old_names=False)
    # Of each of the equal frames of a temporal patch its part.
    depth = image.temporal_patch_size
    least, most = -(-image.min_pixels // depth), image.max_pixels // depth
    frames = read_pixels(clips, 14, _LEAST, 60_000 * _TOKEN, CLIP_MEAN, CLIP_STD, old_names=False)
    return MergedPatches(
        VisionConfig(
            image=replace(image, min_pixels=least, max_pixels=most, lengthens_sides=True),
            video=read_video(clips, frames, min_frames=1, max_frames=_MOST_FRAMES),
        )
    )
