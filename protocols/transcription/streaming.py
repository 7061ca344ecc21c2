"""The delays that a streaming speech model has: how much audio each of its steps takes."""

from __future__ import annotations

import msgspec


class ChunkDelay(msgspec.Struct, frozen=True):
    """A delay of a streaming model. Positions are in samples of 16 kHz, from the beginning of a turn."""

    delay_ms: int
    """Audio of a chunk: text of its first frame waits for so much."""
    first: int
    """Samples after which the first chunk is full."""
    size: int
    """Samples of every later chunk."""

    def last_full(self, num_samples: int) -> int:
        """Where the last chunk ends that is full after so many samples; 0 if none is."""
        if num_samples < self.first:
            return 0
        return num_samples - (num_samples - self.first) % self.size
