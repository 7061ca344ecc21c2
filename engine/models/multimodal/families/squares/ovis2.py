"""Ovis 2: a picture is the whole of it and perhaps tiles; rows of five kinds mark where each of them begins
and ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from ......protocols.engine.messages import Features
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place, one_each

_MARKS: Final = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
START, GRID, COLUMN, ROW, END = range(len(_MARKS))


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token = checkpoint.token("image_token_id")
    place = checkpoint.known("<image>")
    ids = [checkpoint.text.id_of(checkpoint.known(name)) for name in _MARKS]
    marked = checkpoint.value("visual_indicator_token_ids")
    if not isinstance(marked, list) or sorted(marked) != sorted(each or 0 for each in ids):
        raise checkpoint.fault("visual_indicator_token_ids", marked, f"the ids of {', '.join(_MARKS)}")
    height, width = checkpoint.sides("vision_config.image_size")
    patch, stride = (
        checkpoint.size("vision_config.patch_size"),
        checkpoint.size("vision_config.hidden_stride", 1),
    )
    if height != width:
        raise checkpoint.fault("vision_config.image_size", [height, width], "equal sides")
    rows = (-(-(height // patch) // stride)) ** 2

    def row_tokens(features: Features) -> list[str]:
        return [token if each is None else _MARKS[each] for each in layout(_grid_of(features), rows)]

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.covering_tiles", pixel_kinds=IMAGES),
        places={"image": Place(written=place, text_of=one_each(token), token=token)},
        num_rows=lambda features: len(layout(_grid_of(features), rows)),
        row_tokens=row_tokens,
        encode=partial(encode, [marked.index(each) for each in ids]),
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(None, 3, height, width),
    )


def _grid_of(features: Features) -> tuple[int, int]:
    assert features.grid is not None, "that is how the rule makes them"
    return features.grid[1:]


def layout(grid: tuple[int, int], rows: int) -> list[int | None]:
    """The mark that each row of a picture is; None: the next row of its encoding, which has `rows` a tile."""
    lines, columns = grid
    found: list[int | None] = [START, *[None] * rows, GRID]
    if lines * columns > 1:
        for line in range(lines):
            for column in range(columns):
                found += [*[None] * rows, *([COLUMN] if column < columns - 1 else [])]
            found += [ROW] if line < lines - 1 else []
    return [*found, END]


def encode(order: Sequence[int], model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of one grid; the mark `i` is the model's indicator `order[i]`."""
    assert batch.grid is not None, "that is how the rule makes them"
    pixels = batch.stacked
    output = model.get_image_features(pixels.flatten(0, 1))
    pictures = output.pooler_output.unflatten(0, pixels.shape[:2]).flatten(1, 2)
    kinds = layout(batch.grid[1:], output.pooler_output.shape[1])
    is_mark = batch.ids([each is not None for each in kinds]).bool()
    marks = output.visual_indicator_features[batch.ids([order[each] for each in kinds if each is not None])]
    for picture in pictures:
        rows = picture.new_empty(len(kinds), picture.shape[1])
        rows[~is_mark], rows[is_mark] = picture, marks
        yield rows
