"""Idefics 2: a picture in nearly its own shape becomes a fixed number of rows, between two marks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token, around = checkpoint.token("image_token_id"), checkpoint.known("<fake_token_around_image>")
    rows = checkpoint.size("perceiver_config.resampler_n_latents", 64)
    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.bounded_sides", pixel_kinds=IMAGES),
        places={
            "image": Place(
                written=token,
                text_of=lambda media: around + around.join(token for _ in media.items) + around,
                token=token,
            )
        },
        num_rows=lambda _: rows,
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, None, None),
    )


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Each picture as the one picture of a prompt."""
    return list(model.get_image_features(batch.stacked[:, None]).pooler_output)
