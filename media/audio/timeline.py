"""Where the frames of a sound track lie in time, by their stamps: the silence to put in front of each.

A recording's samples follow each other, its stamps need not: a track begins late, packets were lost, an edit
left something out, silence was not sent. A hole is kept as silence, so that times of words are the file's.
Pure, and shared by whole files (`media/audio/decode.py`) and live streams (`media/streams/decoder.py`), which
therefore agree. Knows no container; each says what its zero is.
"""

from __future__ import annotations

import math
from typing import Final

_MIN_FRAME_S: Final = 0.01
_MAX_FRAME_S: Final = 0.15
"""Bounds of what counts as a codec's frame. PCM has frames of one sample, in packets of any length."""
_ROUNDING_S: Final = 0.002
"""Stamps of milliseconds are not exact; a start that much before zero is none."""
_RESTART_S: Final = 1.0
"""Stamps that go back by more are another clock's, as where files were joined."""


class Timeline:
    """One track. `place` takes its frames in order.

    Stamps within two frames of where the samples before them end are rounding. Stamps that go back leave no
    hole, and nothing is dropped for them; if they go back by more than a second, a new clock has begun there.
    """

    def __init__(
        self,
        zero_s: float | None = None,
        *,
        max_hole_s: float = math.inf,
        restart_s: float = math.inf,
        has_exact_lengths: bool = True,
    ) -> None:
        """`zero_s` is the stamp of the beginning; None: that of the first frame, or 0 if that is negative.

        A longer hole than `max_hole_s` counts as that long. Stamps that leap forward by more than `restart_s`
        are another clock's. Lengths are exact where they count samples; otherwise stamps correct their sum.
        """
        self.end_s = 0.0
        """Where the last frame ended."""
        self._zero_s = zero_s
        self._max_hole_s = max_hole_s
        self._restart_s = restart_s
        self._has_exact_lengths = has_exact_lengths
        self._frame_s = _MIN_FRAME_S
        self._last_s: float | None = None

    def place(self, stamp_s: float | None, length: int, rate: int) -> int:
        """Samples of silence in front of a frame of `length` samples; negative: samples of it to leave out,
        because they lie before the beginning. Without a stamp it follows the one before."""
        length_s = length / rate
        self._frame_s = max(self._frame_s, min(length_s, _MAX_FRAME_S))
        silence = 0 if stamp_s is None else self._hole(stamp_s, length, rate)
        self.end_s += silence / rate + length_s
        return silence

    def _hole(self, stamp_s: float, length: int, rate: int) -> int:
        is_first, last_s = self._last_s is None, self._last_s
        self._last_s = stamp_s
        if self._zero_s is None:
            self._zero_s = max(stamp_s, 0.0) - self.end_s
        hole_s = stamp_s - self._zero_s - self.end_s
        leaps = not is_first and hole_s > self._restart_s
        if leaps or (last_s is not None and stamp_s < last_s - _RESTART_S):
            self._zero_s += hole_s
            return 0
        if hole_s >= 2 * self._frame_s:
            counted_s = min(hole_s, self._max_hole_s)
            self._zero_s += hole_s - counted_s
            return round(counted_s * rate)
        if not self.end_s and hole_s < -_ROUNDING_S:
            return -min(round(-hole_s * rate), length)
        if not self._has_exact_lengths and abs(hole_s) < 2 * self._frame_s:
            self.end_s += hole_s
        return 0
