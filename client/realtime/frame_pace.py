"""Which frames of a camera are sent: as many a second as the server takes, and fewer while it is behind.

Knows times, no pixels. The server enforces its rate (`realtime/dialogue/frames.py`); what it would refuse is
left out here. Used by `client/realtime/conversation_machine.py`.
"""

from __future__ import annotations

from typing import Final

_SLACK: Final = 0.85
"""Of the interval between two frames, at least: cameras are not that regular. Servers allow a little more."""
_AHEAD_S: Final = 4.0
"""How far a film may run ahead of the time that has passed; the server allows more."""
_MAX_SLOWER: Final = 8
_EASE_S: Final = 10.0
"""After so long without being told that it is behind, the server is sent more again."""


class FramePace:
    """Times in milliseconds on the frames' own clock, which begins with the first."""

    def __init__(self, max_fps: float) -> None:
        self._interval_ms = 1000 / max_fps
        self._last_ms: float | None = None
        self._due_ms = 0.0
        self._slower = 1
        self._slowed_ms = 0.0
        self._began = 0.0
        self._first_ms = 0.0

    def wait_s(self, timestamp_ms: float, *, now: float) -> float:
        """How long a frame must wait so as not to come from the future."""
        if self._last_ms is None:
            self._began, self._first_ms = now, timestamp_ms
        return max(0.0, (timestamp_ms - self._first_ms) / 1000 - _AHEAD_S - (now - self._began))

    def admits(self, timestamp_ms: float) -> bool:
        """Whether a frame is sent; False leaves it out."""
        if self._last_ms is None:
            self._last_ms = self._due_ms = timestamp_ms
        else:
            if self._slower > 1 and timestamp_ms - self._slowed_ms > _EASE_S * 1000:
                self._slower, self._slowed_ms = self._slower // 2, timestamp_ms
            interval_ms = self._interval_ms * self._slower
            is_early = timestamp_ms < self._due_ms - (1 - _SLACK) * interval_ms
            if is_early or timestamp_ms - self._last_ms < _SLACK * interval_ms:
                return False
            self._last_ms = timestamp_ms
            self._due_ms = max(self._due_ms, timestamp_ms - interval_ms)
        self._due_ms += self._interval_ms * self._slower
        return True

    def slow_down(self) -> None:
        """The server refused a frame, for others wait."""
        self._slower = min(2 * self._slower, _MAX_SLOWER)
        self._slowed_ms = self._last_ms or 0.0
