"""The audio of one session that may still be asked for: mono float32 at 16 kHz, by absolute position.

Blocks of a second, so that audio that was stored is never moved, and memory follows the open turn and not the
session's age. Knows nothing of turns. Used by `actors/live/session.py`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]

_BLOCK: Final = 16_000
"""64 KB: most of what a session holds in which nobody speaks."""


class AudioStore:
    """Samples `[start, end)` of a session's timeline."""

    def __init__(self) -> None:
        self._blocks: tuple[int, list[Samples]] = (0, [])
        """Where the first block begins, and the blocks. Replaced as one, for `copy` may read in a thread."""
        self.start = 0
        self.end = 0

    @property
    def num_bytes(self) -> int:
        """Memory of what is held."""
        return 4 * _BLOCK * len(self._blocks[1])

    def append(self, samples: Samples) -> None:
        """Add samples at the end of the timeline."""
        first, blocks = self._blocks
        while len(samples):
            used = self.end - first - _BLOCK * (len(blocks) - 1)
            if used == _BLOCK:
                blocks.append(np.empty(_BLOCK, np.float32))
                used = 0
            piece, samples = samples[: _BLOCK - used], samples[_BLOCK - used :]
            blocks[-1][used : used + len(piece)] = piece
            self.end += len(piece)

    def copy(self, start: int, end: int) -> Samples:
        """Samples `[start, end)`; both must be inside what is held."""
        if not self.start <= start <= end <= self.end:
            raise IndexError(f"[{start}, {end}) is not inside [{self.start}, {self.end})")
        first, blocks = self._blocks
        copied: Samples = np.empty(end - start, np.float32)
        position = start
        while position < end:
            index, offset = divmod(position - first, _BLOCK)
            piece = blocks[index][offset : offset + end - position]
            copied[position - start : position - start + len(piece)] = piece
            position += len(piece)
        return copied

    def forget_before(self, position: int) -> None:
        """Drop what lies before `position`; positions already dropped or still to come are no error."""
        self.start = min(max(position, self.start), self.end)
        first, blocks = self._blocks
        num_gone = (self.start - first) // _BLOCK
        if num_gone:
            self._blocks = (first + num_gone * _BLOCK, blocks[num_gone:])
