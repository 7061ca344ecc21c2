"""MiniMax M3: merged patches between two tokens, with the positions of text."""

from __future__ import annotations

from dataclasses import replace

from ......protocols.engine.messages import MediaItems
from ...family import Checkpoint, MediaFamily, Place
from ..merged_patches import family_of
from .in_line import in_line


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. Videos are not taken yet."""
    family = in_line(family_of(checkpoint, width="text_config.hidden_size", pixels=".rules.still_patches"))
    token = family.places["image"].token
    start, end = (checkpoint.known(f"]<]{name} of image[>[") for name in ("start", "end"))

    def text_of(media: MediaItems) -> str:
        return "".join(f"{start}{token}{end}" for _ in media.items)

    return replace(family, places={"image": Place(written=token, text_of=text_of, token=token)})
