"""InternVL: a picture is tiles and the whole of it, each with the same number of rows; a video is its frames,
each behind its number."""

from __future__ import annotations

from typing import Final

from .....protocols.engine.messages import MediaItems, MediaKind
from ...prompts import MediaRules
from ..family import Checkpoint, MediaFamily, Place, pooled

_VIDEO: Final = "<video>"


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id")
    start, end = checkpoint.known("<img>"), checkpoint.known("</img>")
    height, width = checkpoint.sides("vision_config.image_size")
    patch_height, patch_width = checkpoint.sides("vision_config.patch_size")
    ratio = float(checkpoint.value("downsample_ratio", 0.5))
    rows = int((height // patch_height) * (width // patch_width) * ratio**2)

    def text_of(media: MediaItems) -> str:
        return f"{start}{token * len(media.items)}{end}"

    def film_of(media: MediaItems) -> str:
        frames = enumerate(media.items, 1)
        return "\n".join(f"Frame{number}: {start}{token}{end}" for number, _ in frames)

    places: dict[MediaKind, Place] = {"image": Place(written=token, text_of=text_of, token=token)}
    if checkpoint.has_control(_VIDEO):
        places["video"] = Place(written=_VIDEO, text_of=film_of, token=token)
    return MediaFamily(
        purpose="chat · text, images" + (", video" if "video" in places else ""),
        media=MediaRules(pixels=".rules.tiles", pixel_kinds=frozenset(places), is_live=False),
        places=places,
        num_rows=lambda _: rows,
        encode=pooled,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, height, width),
    )
