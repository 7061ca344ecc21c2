"""Mistral 3: a picture in its own shape; a token ends each line of rows, another one the picture."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from .....protocols.engine.messages import Features
from ...prompts import IMAGES, MediaRules
from ..family import Checkpoint, EncodeBatch, MediaFamily, Place, one_each


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    return family_of(checkpoint, checkpoint.size("spatial_merge_size", 2))


def family_of(checkpoint: Checkpoint, merge_size: int) -> MediaFamily:
    """One of whose patches squares of so many on a side become a row."""
    token = checkpoint.token("image_token_id", "image_token_index")
    names = (checkpoint.known("[IMG_BREAK]"), checkpoint.known("[IMG_END]"))
    square = checkpoint.size("vision_config.patch_size") * merge_size

    def row_tokens(features: Features) -> list[str]:
        lines, columns = features.shape[1] // square, features.shape[2] // square
        return [*(([token] * columns + [names[0]]) * lines)[:-1], names[1]]

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.any_shape", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=lambda features: len(row_tokens(features)),
        row_tokens=row_tokens,
        encode=partial(encode, square, tuple(checkpoint.text.id_of(name) or 0 for name in names)),
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, None, None),
    )


def encode(square: int, ends: tuple[int, ...], model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of one size, with the embeddings of the tokens that end their lines."""
    pixels = batch.stacked
    height, width = pixels.shape[-2:]
    lines, columns = height // square, width // square
    line_end, picture_end = model.get_input_embeddings()(batch.ids(ends))
    for rows in model.get_image_features(pixels, image_sizes=[(height, width)] * len(pixels)).pooler_output:
        found = rows.new_empty(lines, columns + 1, rows.shape[-1])
        found[:, :columns] = rows.view(lines, columns, -1)
        found[:, columns] = line_end
        found[-1, -1] = picture_end
        yield found.flatten(0, 1)
