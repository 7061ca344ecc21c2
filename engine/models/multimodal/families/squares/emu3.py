"""Emu 3: a picture in its own shape, of which a codebook makes tokens, and one that ends each line; their
embeddings are its rows, behind its size as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ......protocols.engine.messages import Features, MediaItems
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place

_MULTIPLIERS = (1, 2, 2, 4)
"""Of channels, in a codebook's encoder: each behind the first halves a picture's sides."""


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. It answers in text; it makes no pictures."""
    token = checkpoint.token("image_token_id", "vocabulary_map.<image>")
    start, end = checkpoint.known("<|image start|>"), checkpoint.known("<|image end|>")
    first, last = checkpoint.known("<|image token|>"), checkpoint.known("<|extra_201|>")
    halvings = len(checkpoint.value("vq_config.channel_multiplier", _MULTIPLIERS)) - 1

    def grid(features: Features) -> tuple[int, int]:
        return features.shape[1] >> halvings, features.shape[2] >> halvings

    def num_rows(features: Features) -> int:
        lines, columns = grid(features)
        return lines * (columns + 1)

    def text_of(media: MediaItems) -> str:
        text = ""
        for item in media.items:
            lines, columns = grid(item.features)
            text += f"{start}{lines}*{columns}{first}{token}{last}{end}"
        return text

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.documents.bounded_area", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=text_of, token=token)},
        num_rows=num_rows,
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, None, None),
    )


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of one size."""
    pixels = batch.stacked
    return list(model.get_image_features(pixels, [tuple(pixels.shape[-2:])] * len(pixels)).pooler_output)
