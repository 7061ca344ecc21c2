"""Where speech that never pauses can be cut: the quietest place of its last seconds.

Knows voice activity per frame, not audio. The longest run of frames without speech is the best place, since
it is the surest gap between words; in speech without any such frame it is the frame least like speech. Of
equal places the latest wins, so that turns are as long as they can be.
"""

from __future__ import annotations

from collections import deque

from .turns import FRAME_SAMPLES


class QuietPlaces:
    """The voice activity of the last `num_samples` samples, frame by frame."""

    def __init__(self, num_samples: int) -> None:
        self._frames: deque[tuple[int, float, bool]] = deque(maxlen=max(1, num_samples // FRAME_SAMPLES))

    def push(self, end_sample: int, probability: float, *, is_speech: bool) -> None:
        """Take the frame that ends at `end_sample`."""
        self._frames.append((end_sample, probability, is_speech))

    def best(self, after: int) -> int | None:
        """The middle of the quietest place that begins at or after sample `after`; None if no frame does."""
        quietest: tuple[float, int] | None = None
        longest: tuple[int, int] | None = None
        run_start = run_end = -1
        for end, probability, is_speech in self._frames:
            start = end - FRAME_SAMPLES
            if start < after:
                continue
            if quietest is None or probability <= quietest[0]:
                quietest = probability, start + FRAME_SAMPLES // 2
            if is_speech:
                continue
            if start != run_end:
                run_start = start
            run_end = end
            if longest is None or run_end - run_start >= longest[0]:
                longest = run_end - run_start, (run_start + run_end) // 2
        if longest is not None:
            return longest[1]
        return None if quietest is None else quietest[1]
