"""What streaming speech models have: delays, and streams whose text is cut into segments.

Positions are in samples of 16 kHz.
"""

from __future__ import annotations

import msgspec

from .transcript import Transcript


class ChunkDelay(msgspec.Struct, frozen=True):
    """A delay of a streaming model. Positions count from the beginning of a turn."""

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


class Segmentation(msgspec.Struct, frozen=True):
    """Where the text of a stream is cut into segments."""

    silence: int
    """A segment ends when so much audio has no word behind its last one."""
    max_length: int
    """It ends before the first word that begins so much later than it did."""


class StreamSegment(msgspec.Struct, frozen=True):
    """A segment of a stream; times in its transcript count from its start."""

    start: int
    end: int
    """As far as it is known, if it is not over."""
    transcript: Transcript
    is_over: bool


class StreamAnswer(msgspec.Struct, frozen=True):
    """What was said in a part of a stream."""

    segments: tuple[StreamSegment, ...]
    """In order. All but the last are over; the last one may be."""
    next_start: int
    """No word before that will still come in a segment that is not over."""
    kept_from: int
    """From where on the stream needs its audio, to be fed again if the engine loses what it has computed."""
