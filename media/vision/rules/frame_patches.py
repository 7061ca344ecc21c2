"""Merged patches whose bounds of a video are of each frame: the rule of Qwen2-VL and Qwen2.5-VL.

Sizes equal those of transformers' Qwen2VLVideoProcessor with `cap_pixels_per_frame`, which holds here unless
a file says otherwise. Published folders have no file for videos: theirs are then the class's own bounds, as
the bounds of the images' file would make a frame of up to 16,000 tokens.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from ..config import CLIP_MEAN, CLIP_STD, read_pixels, read_video, read_vision_config, video_fields
from ..merged_patches import MergedPatches

_TOKEN: Final = 28 * 28
_MOST_TOKENS: Final = 128_000


def open_rule(folder: Path) -> MergedPatches:
    """See `pixel_rule.open_rule`."""
    found, fields = read_vision_config(folder), video_fields(folder)
    pixels = read_pixels(fields, 14, 128 * _TOKEN, 768 * _TOKEN, CLIP_MEAN, CLIP_STD, old_names=True)
    if fields.get("image_processor_type") is not None and fields.get("video_processor_type") is None:
        least, most = 128 * pixels.factor**2, 768 * pixels.factor**2
        pixels = replace(pixels, min_pixels=least, max_pixels=most)
    video = read_video(fields, pixels, caps=True, max_video_tokens=_MOST_TOKENS)
    return MergedPatches(replace(found, video=replace(video, bounds_frames=True)))
