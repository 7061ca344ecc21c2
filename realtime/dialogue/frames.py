"""One live frame, and the clock frames must follow: in order, not faster than the rate, not ahead.

Knows neither pixels nor what becomes of a frame: that is `realtime/dialogue/video.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...protocols.errors import ClientError, wrong

_AHEAD_S: Final = 10.0
"""How far a client's clock may run ahead of ours, between the first frame and now."""
_SLACK: Final = 0.8
"""Of the interval between frames: cameras are not that regular."""


@dataclass(slots=True)
class Frame:
    """One frame on its way into a pair."""

    id: int
    data: bytes
    timestamp_ms: int
    event_id: str | None
    size: tuple[int, int] | None = None
    thumbnail: bytes = b""


class FrameClock:
    """The client's clock beside ours, since the first frame."""

    def __init__(self, max_fps: float) -> None:
        self.first_ms = 0
        """The first frame's time."""
        self.last_ms = -1
        """The newest frame's time; -1 before the first."""
        self._began = 0.0
        self._max_fps = max_fps

    def checked(self, timestamp_ms: int | None, *, now: float) -> int:
        """When a frame was seen: as its client says, or now. Raises ClientError for a time it cannot have."""
        is_first = self.last_ms < 0
        passed_s = 0.0 if is_first else now - self._began
        if timestamp_ms is None:
            timestamp_ms = self.first_ms + round(passed_s * 1000)
        if is_first:
            return timestamp_ms
        if timestamp_ms <= self.last_ms:
            raise wrong(
                "timestamp_ms",
                f"is {timestamp_ms}; the frame before it has {self.last_ms}",
                code="frame_out_of_order",
            )
        if timestamp_ms > self.first_ms + (passed_s + _AHEAD_S) * 1000:
            raise wrong(
                "timestamp_ms",
                f"is {timestamp_ms}, more than {_AHEAD_S:g} s ahead of what has passed",
                code="frame_from_the_future",
            )
        if timestamp_ms - self.last_ms < 1000 / self._max_fps * _SLACK:
            raise ClientError(
                f"the frame is {timestamp_ms - self.last_ms} ms after the one before it; the limit is "
                f"{self._max_fps:g} frames per second",
                code="frame_rate_exceeded",
                param="timestamp_ms",
            )
        return timestamp_ms

    def came(self, timestamp_ms: int, *, now: float) -> None:
        """A frame was taken."""
        if self.last_ms < 0:
            self.first_ms, self._began = timestamp_ms, now
        self.last_ms = timestamp_ms


def change_between(one: bytes, other: bytes) -> float:
    """Mean absolute difference of two thumbnails, 0 to 1."""
    if len(one) != len(other) or not one:
        return 1.0
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / (255 * len(one))
