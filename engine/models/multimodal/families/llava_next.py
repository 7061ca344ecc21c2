"""LLaVA-NeXT: a picture is a small whole and the tiles of a larger one, whose rows in the frame around it are
left out.

A row of its own ends each line of the larger one.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from .....protocols.engine.messages import Features
from ...prompts import IMAGES, MediaRules
from ..family import Checkpoint, EncodeBatch, MediaFamily, Place, one_each
from .llava import has_class_row


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    return family_of(checkpoint, most=None)


def family_of(checkpoint: Checkpoint, *, most: int | None, rate: Fraction = Fraction(1)) -> MediaFamily:
    """With the rows of the larger picture made fewer beyond those of so many tiles; `rate` is that of rows
    to patches, on a side."""
    token = checkpoint.token("image_token_id", "image_token_index")
    height, width = checkpoint.sides("vision_config.image_size")
    side = int(height // checkpoint.size("vision_config.patch_size") * rate)
    is_full = checkpoint.value("vision_feature_select_strategy", "default") == "full"
    if height != width or (is_full and has_class_row(checkpoint)):
        raise checkpoint.fault(
            "vision_feature_select_strategy", "full", "default, or a square tower without a class row"
        )
    sizes = checkpoint.pairs("image_grid_pinpoints")

    def num_rows(features: Features) -> int:
        assert features.grid is not None, "that is how the rule makes them"
        _, tall, wide = features.grid
        large = best_size((tall, wide), sizes)
        lines, columns = _unpadded(large[0] // height * side, large[1] // width * side, tall, wide)
        if most is not None and (ratio := (lines * columns / (most * side**2)) ** 0.5) > _MOST_RATIO:
            lines, columns = int(lines // ratio), int(columns // ratio)
        return side**2 + lines * (columns + 1)

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.anyres", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=num_rows,
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(None, 3, height, width),
    )


_MOST_RATIO = 1.1


def best_size(picture: tuple[int, int], sizes: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Height and width of the larger one, as who prepares it chooses it: most of the picture's pixels, and
    of those the smallest."""
    height, width = picture

    def score(size: tuple[int, int]) -> tuple[int, int]:
        scale = min(size[1] / width, size[0] / height)
        shown = min(int(width * scale) * int(height * scale), width * height)
        return shown, shown - size[0] * size[1]

    return max(sizes, key=score)


def _unpadded(lines: int, columns: int, height: int, width: int) -> tuple[int, int]:
    """Rows that show something of a picture of this size."""
    if width / height > columns / lines:
        shown = int(round(height * (columns / width), 7))
        return lines - (lines - shown) // 2 * 2, columns
    shown = int(round(width * (lines / height), 7))
    return lines, columns - (columns - shown) // 2 * 2


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of one size."""
    output = model.get_image_features(batch.stacked, image_sizes=batch.grids[:, 1:])
    return list(output.pooler_output)
