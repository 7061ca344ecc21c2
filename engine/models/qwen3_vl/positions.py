"""Rotary positions of prompts with pictures in them: three axes (time, height, width) instead of one.

Text advances all axes by one. The tokens of a grid spread over it from where the text stood, and the text
behind goes on after the grid's longer side, as `get_rope_index` of `transformers`' `modeling_qwen3_vl.py` has
it. Items that go on with a video (`MediaSpan.since_start`) spread from where it began, later in time, and the
text behind goes on after the largest position of the whole video (Qwen2-VL, arXiv 2409.12191, §2.1). Pure and
torch-free; a `PositionRule` of `engine/planning/positions.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ....protocols.engine.messages import MediaSpan
from ...planning.positions import Axes


class RotaryPositions:
    """Rotary positions of the tokens of one prompt, and of the answer behind it."""

    __slots__ = ("_bounds", "_pieces")

    def __init__(self, spans: Iterable[MediaSpan]) -> None:
        # Pieces of the sequence: text at `index + shift`, or a grid (height, width) from position `base` on,
        # `later` in time.
        self._bounds: list[int] = [0]
        self._pieces: list[tuple[int, tuple[int, int] | None, int]] = [(0, None, 0)]
        shift = base = top = 0
        for span in spans:
            if span.grid is None:
                continue
            time, height, width = span.grid
            later = span.since_start or 0
            if span.since_start is None:
                base = top = span.start + shift
            end = span.start + span.num_tokens
            top = max(top, base + max(later + time, height, width))
            shift = top - end
            self._bounds += [span.start, end]
            self._pieces += [(base, (height, width), later), (shift, None, 0)]

    @property
    def has_grids(self) -> bool:
        """Whether any position differs from the token's index."""
        return len(self._pieces) > 1

    def rows(self, start: int, num_rows: int) -> Axes:
        """The axes of tokens `start` to `start + num_rows`."""
        times: list[int] = []
        heights: list[int] = []
        widths: list[int] = []
        end = start + num_rows
        piece = bisect_right(self._bounds, start) - 1
        while start < end:
            stop = end if piece + 1 == len(self._bounds) else min(end, self._bounds[piece + 1])
            base, grid, later = self._pieces[piece]
            if grid is None:
                for axis in (times, heights, widths):
                    axis.extend(range(start + base, stop + base))
            else:
                height, width = grid
                local = range(start - self._bounds[piece], stop - self._bounds[piece])
                times.extend(base + later + each // (height * width) for each in local)
                heights.extend(base + each // width % height for each in local)
                widths.extend(base + each % width for each in local)
            start = stop
            piece += 1
        return tuple(times), tuple(heights), tuple(widths)


def rotary_positions(spans: Iterable[MediaSpan]) -> RotaryPositions | None:
    """None if every token's position is its index on all axes."""
    positions = RotaryPositions(spans)
    return positions if positions.has_grids else None
