"""Fuyu: a picture is patches, each of which one product makes a row; a token ends each of its lines. There is
no tower."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ......protocols.engine.messages import Features
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place, one_each


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token, line_end = checkpoint.token("image_token_id"), checkpoint.known("|NEWLINE|")
    patch, channels = checkpoint.size("patch_size", 30), checkpoint.size("num_channels", 3)
    width = "text_config.hidden_size" if checkpoint.value("text_config") is not None else "hidden_size"

    def row_tokens(features: Features) -> list[str]:
        assert features.grid is not None, "that is how the rule makes them"
        _, lines, columns = features.grid
        return ([token] * columns + [line_end]) * lines

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.documents.padded_lines", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=lambda features: len(row_tokens(features)),
        row_tokens=row_tokens,
        encode=partial(encode, checkpoint.text.id_of(line_end) or 0),
        row_width=checkpoint.size(width),
        feature_shape=(None, channels * patch**2),
    )


def encode(line_end: int, model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of one grid, with the embeddings of the token that ends their lines."""
    assert batch.grid is not None, "that is how the rule makes them"
    _, lines, columns = batch.grid
    ends = model.get_input_embeddings()(batch.ids([line_end] * lines))[:, None]
    for rows in model.get_image_features(batch.stacked).last_hidden_state:
        found = rows.new_empty(lines, columns + 1, rows.shape[-1])
        found[:, :columns], found[:, columns:] = rows.view(lines, columns, -1), ends
        yield found.flatten(0, 1)
