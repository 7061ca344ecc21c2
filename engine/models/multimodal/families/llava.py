"""LLaVA 1.5 and VipLLaVA: a picture is one square, each patch of it a row; Pixtral, which is one of these
with a tower that takes any shape: as Mistral 3."""

from __future__ import annotations

from ..family import Checkpoint, MediaFamily, one_square
from .mistral3 import family_of as in_its_own_shape


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    if checkpoint.value("vision_config.model_type") == "pixtral":
        return in_its_own_shape(checkpoint, merge_size=1)
    height, width = checkpoint.sides("vision_config.image_size")
    patch = checkpoint.size("vision_config.patch_size")
    rows = (height // patch) * (width // patch)
    if checkpoint.value("vision_feature_select_strategy", "default") == "full" and has_class_row(checkpoint):
        rows += 1
    return one_square(checkpoint, rows)


def has_class_row(checkpoint: Checkpoint) -> bool:
    """Whether its tower has a row that is no patch, which "default" leaves out."""
    return bool(checkpoint.value("vision_config.model_type") == "clip_vision_model")
