"""GLM-4V: merged patches, bounded by the pixels of a temporal patch; in a video each stands in front of the
whole second that it begins in."""

from __future__ import annotations

from .....protocols.engine.messages import MediaItems
from ..family import Checkpoint, MediaFamily, Place
from .merged_patches import family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    return family_of(
        checkpoint,
        width="text_config.hidden_size",
        pixels=".rules.glm_patches",
        video=None if checkpoint.value("video_token_id") is None else _videos(checkpoint),
    )


def _videos(checkpoint: Checkpoint) -> Place:
    token = checkpoint.token("image_token_id")
    start, end = checkpoint.token("image_start_token_id"), checkpoint.token("image_end_token_id")

    def text_of(media: MediaItems) -> str:
        return "".join(f"{start}{token}{end}{int(start_s)}" for start_s in media.starts_s)

    return Place(written=checkpoint.token("video_token_id"), text_of=text_of, token=token)
