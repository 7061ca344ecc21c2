"""LLaVA-OneVision: as LLaVA-NeXT, with fewer rows of a large picture. Each picture of a prompt is looked
at as if it were the only one.

A video is pairs of frames, and behind them the row that ends lines of pictures, which is an item of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from .....protocols.engine.messages import ContentHash, EncoderItem, Features
from ..family import Checkpoint, EncodeBatch, MediaFamily, Place
from . import llava_next

_END: Final = (1, 1, 1)
"""The grid of a video's last row: no picture is so small."""


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    ratio = checkpoint.value("vision_aspect_ratio", "anyres_max_9")
    found = re.fullmatch(r"anyres_max_(\d{1,4})", str(ratio))
    if found is None:
        raise checkpoint.fault("vision_aspect_ratio", ratio, "anyres_max_ and a number")
    family = llava_next.family_of(checkpoint, most=int(found[1]))
    if checkpoint.value("video_token_id", checkpoint.value("video_token_index")) is None:
        return family
    _, _, side, _ = family.feature_shape
    assert side is not None, "that is how that family makes it"
    rows = -(-(side // checkpoint.size("vision_config.patch_size")) // 2)
    token = checkpoint.token("video_token_id", "video_token_index")
    end = Features((1, 3, side, side), bytes(4 * 3 * side**2), grid=_END)
    closing = EncoderItem(ContentHash(f"llava_onevision end {side}"), end)
    video = Place(
        written=token, text_of=lambda media: token * (len(media.items) + 1), token=token, closing=closing
    )

    def num_rows(features: Features) -> int:
        if features.grid is None:
            return features.shape[0] * rows**2
        return 1 if features.grid == _END else family.num_rows(features)

    return replace(
        family,
        purpose="chat · text, images, video",
        media=replace(family.media, pixel_kinds=family.media.pixel_kinds | {"video"}, is_live=False),
        places={**family.places, "video": video},
        num_rows=num_rows,
        encode=encode,
    )


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of one size, frames, or a video's end."""
    grid = batch.grid
    if grid is None:
        return list(model.get_video_features(batch.stacked).pooler_output[:, :-1])
    if grid == _END:
        return [model.image_newline[None]]
    return llava_next.encode(model, batch)
