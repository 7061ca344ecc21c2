"""HunYuan-VL and HunyuanOCR: merged patches; a row ends each line of them, one begins a picture, one ends it.

Rows of a picture lie on separate axes: by column, line and the picture's number. Positions of text are
its index on all axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ......protocols.engine.messages import Features, MediaSpan
from .....planning.positions import Axes
from ...family import Checkpoint, MediaFamily
from ..merged_patches import family_of

_OWN_AXES: Final = 3
_SECTIONS: Final = tuple(
    f"{part}{field}.{name}"
    for part in ("text_config.", "")
    for field in ("rope_parameters", "rope_scaling")
    for name in ("mrope_section", "xdrope_section")
)


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. Published configs have the decoder's fields beside those of the whole."""
    nested = "text_config.hidden_size"
    family = family_of(
        checkpoint,
        width="hidden_size" if checkpoint.value(nested) is None else nested,
        pixels=".rules.still_patches",
    )
    sections = next((found for path in _SECTIONS if (found := checkpoint.value(path)) is not None), None)
    if not isinstance(sections, list) or len(sections) < _OWN_AXES:
        raise checkpoint.fault("text_config.rope_parameters.mrope_section", sections, "three or more numbers")
    depth = checkpoint.size("vision_config.temporal_patch_size", 1)
    if depth != 1:
        raise checkpoint.fault("vision_config.temporal_patch_size", depth, "1")
    channels, patch = (
        checkpoint.size("vision_config.num_channels", 3),
        checkpoint.size("vision_config.patch_size", 16),
    )
    merge = checkpoint.size("vision_config.spatial_merge_size", 2)
    return replace(
        family,
        num_rows=partial(_num_rows, merge),
        feature_shape=(None, channels * patch**2),
        positions=partial(numbered_positions, len(sections)),
        rotary_axes=len(sections),
    )


def _num_rows(merge: int, features: Features) -> int:
    assert features.grid is not None, "that is how the rule makes them"
    _, height, width = features.grid
    return (height // merge) * (width // merge + 1) + 2


class NumberedPositions:
    """Positions of the tokens of one prompt: all axes are a token's index, but the last three of rows of a
    grid, which are its column, its line and the picture's number."""

    __slots__ = ("_num_axes", "_spans")

    def __init__(self, num_axes: int, spans: Sequence[MediaSpan]) -> None:
        self._num_axes = num_axes
        self._spans = tuple(spans)

    def rows(self, start: int, num_rows: int) -> Axes:
        """See `TokenPositions`."""
        axes = [list(range(start, start + num_rows)) for _ in range(self._num_axes)]
        columns, lines, numbers = axes[-_OWN_AXES:]
        for number, span in enumerate(self._spans):
            assert span.grid is not None, "spans without one are left out"
            width = span.grid[2] + 1
            first = span.start + 1
            for token in range(max(start, first), min(start + num_rows, first + span.grid[1] * width)):
                row = token - start
                lines[row], columns[row] = divmod(token - first, width)
                numbers[row] = number
        return tuple(map(tuple, axes))


def numbered_positions(num_axes: int, spans: Sequence[MediaSpan]) -> NumberedPositions | None:
    """A `PositionRule`."""
    grids = [span for span in spans if span.grid is not None]
    return NumberedPositions(num_axes, grids) if grids else None
