"""Positions of the input audio of one session, in samples at 16 kHz. Knows positions, not audio.

    0 ──── forgotten ──── base ──────── scored ──── received
           given back     not committed yet   judged      in the store

`forgotten` may pass `base` where voice activity detection found only silence. `realtime/turns/listener.py`
moves the marks.
"""

from __future__ import annotations

from typing import Final

from ..protocols.shared.audio_format import INTERNAL_RATE

FORGET_STEP: Final = INTERNAL_RATE // 2
"""Audio is given back in steps of half a second, to keep effects few."""


class Buffer:
    """The marks of a session's timeline; none ever moves back."""

    def __init__(self) -> None:
        self.received = 0
        self.scored = 0
        self.base = 0
        self.forgotten = 0
        self.follows_commit = False
        """`base` is where a commit ended (not a clear, not the beginning)."""

    @property
    def num_buffered(self) -> int:
        """Samples that were not committed."""
        return self.received - self.base

    def score(self, end_sample: int) -> bool:
        """Advance `scored`; False for a position that is old, or not received yet."""
        if not self.scored < end_sample <= self.received:
            return False
        self.scored = end_sample
        return True

    def commit(self, end: int) -> None:
        """Everything before `end` is committed."""
        self.base = end
        self.follows_commit = True

    def clear(self) -> None:
        """Everything received is dropped, and will not be scored any more."""
        self.base = self.scored = self.received
        self.follows_commit = False

    def slide(self, base: int) -> None:
        """Give up the audio before `base`, if it is not given up already."""
        if base > self.base:
            self.base = base
            self.follows_commit = False

    def forget(self, keep_from: int) -> bool:
        """Note that audio before `keep_from` is not needed; True once that is worth telling."""
        if keep_from - self.forgotten < FORGET_STEP:
            return False
        self.forgotten = keep_from
        return True

    def check(self) -> None:
        """Assert the order of the marks."""
        assert 0 <= self.base <= self.received
        assert 0 <= self.scored <= self.received
        assert 0 <= self.forgotten <= self.received
