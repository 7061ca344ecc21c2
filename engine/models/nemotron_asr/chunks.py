"""How a stream of mel frames is cut into chunks, and which encoder frames (rows) come of them.

Torch-free arithmetic, for who feeds a model and for the model itself. A row is 8 mel frames. The first row
needs a single frame, since the convolutions see zeros in front of the stream, so the first chunk is seven
frames shorter than the others. Rows of a chunk attend to each other and to whole chunks before.
"""

from __future__ import annotations

from typing import Final

FRAMES_PER_ROW: Final = 8
"""Mel frames of 10 ms: a row is 80 ms."""


def chunk_rows(lookahead: int) -> int:
    """Rows of a chunk: one, and those that it may look ahead at."""
    return lookahead + 1


def chunk_frames(lookahead: int, *, is_first: bool) -> int:
    """Mel frames of a chunk."""
    return FRAMES_PER_ROW * chunk_rows(lookahead) - (FRAMES_PER_ROW - 1 if is_first else 0)


def is_whole(num_frames: int, lookahead: int, *, is_first: bool) -> bool:
    """Whether so many frames are one or several chunks in a row, the first of them the stream's or not."""
    later = num_frames - chunk_frames(lookahead, is_first=is_first)
    return later >= 0 and later % chunk_frames(lookahead, is_first=False) == 0


def num_rows(num_frames: int, *, is_first: bool) -> int:
    """Rows of so many frames, at least one, that follow whole chunks: as many as there are once the stream
    ends here."""
    for _ in range(3):
        num_frames = num_frames // 2 + 1 if is_first else (num_frames + 1) // 2
    return num_frames


def left_rows(left_context: int, lookahead: int) -> int:
    """Rows before its chunk that a row attends to, where it may see `left_context`: whole chunks."""
    return left_context - left_context % chunk_rows(lookahead)
