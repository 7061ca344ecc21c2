"""The audio of one session that may still be asked for: mono float32 at 16 kHz, by absolute position.

One growing array; `forget_before` moves its start, so memory follows the open turn and not the session's
age. Knows nothing of turns. Used by `actors/live/session.py`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]

_FIRST_CAPACITY: Final = 16_000
"""64 KB: most of what a session holds in which nobody speaks."""


class AudioStore:
    """Samples `[start, end)` of a session's timeline."""

    def __init__(self) -> None:
        self._buffer: Samples = np.zeros(_FIRST_CAPACITY, dtype=np.float32)
        self._offset = 0  # index in _buffer of position `start`
        self.start = 0
        self.end = 0

    def append(self, samples: Samples) -> None:
        """Add samples at the end of the timeline."""
        held = self.end - self.start
        needed = held + len(samples)
        if self._offset + needed > len(self._buffer):
            capacity = len(self._buffer)
            while capacity < needed:
                capacity *= 2
            # A fresh array, never a move in place: `copy` may be reading the old one in a thread.
            grown: Samples = np.empty(capacity, dtype=np.float32)
            grown[:held] = self._buffer[self._offset : self._offset + held]
            self._buffer, self._offset = grown, 0
        tail = self._offset + held
        self._buffer[tail : tail + len(samples)] = samples
        self.end += len(samples)

    def copy(self, start: int, end: int) -> Samples:
        """Samples `[start, end)`; both must be inside what is held."""
        if not self.start <= start <= end <= self.end:
            raise IndexError(f"[{start}, {end}) is not inside [{self.start}, {self.end})")
        first = self._offset + start - self.start
        return self._buffer[first : first + end - start].copy()

    def forget_before(self, position: int) -> None:
        """Drop what lies before `position`; positions already dropped or still to come are no error."""
        position = min(max(position, self.start), self.end)
        self._offset += position - self.start
        self.start = position
        held = self.end - self.start
        if len(self._buffer) > _FIRST_CAPACITY and held * 4 < len(self._buffer):
            capacity = max(_FIRST_CAPACITY, held * 2)
            kept: Samples = np.empty(capacity, dtype=np.float32)
            kept[:held] = self._buffer[self._offset : self._offset + held]
            self._buffer, self._offset = kept, 0
