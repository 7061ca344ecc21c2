"""How many of torch's threads a step takes, and an encode beside it.

torch keeps their number per calling thread, and so does this.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

_MIN_ROWS: Final = 6
_MAX_BYTES_FOR_ONE: Final = 256 * 1024 * 1024
_MIN_BYTES_FOR_MORE: Final = 32 * 1024 * 1024
"""A step of fewer rows is bound by reading weights. Where somebody speaks, sockets and voice activity want
the other cores, and each product of small weights (whisper-base: 100 MB) waits for them, longer than it
saves. Of large ones a wait is a small part; the smallest are not worth waking anybody."""
_FOR_STEPS: Final = 4
"""Of so many threads one is for steps beside what is encoded apart, and the rest for that: more threads than
processors wait for each other. Of fewer threads none is taken from an encode, whose parts the others take."""


class StepThreads:
    """Those of one model. `most` is what torch may use (None: whoever calls has seen to it)."""

    def __init__(self, most: int | None, weight_bytes: int) -> None:
        self._most = most
        self._weight_bytes = weight_bytes
        self._mine = threading.local()
        self._is_encoder_overlapped = False
        self.is_quiet = False
        """Nobody speaks."""

    def take(self, num_rows: int) -> None:
        """As many as work on `num_rows` rows gains from."""
        if self._most is None:
            return
        least = _MIN_BYTES_FOR_MORE if self.is_quiet else _MAX_BYTES_FOR_ONE
        if num_rows < _MIN_ROWS and self._weight_bytes < least:
            self._use(1)
        else:
            self._use(max(self._most // _FOR_STEPS, 1) if self._is_encoder_overlapped else self._most)

    def take_for_encode(self) -> None:
        """All, but for those of the steps beside it."""
        if self._most is not None:
            self._use(self._most - (self._most // _FOR_STEPS if self._is_encoder_overlapped else 0))

    @contextmanager
    def overlapped_encoding(self) -> Iterator[None]:
        """While something is encoded in another thread than the steps'."""
        self._is_encoder_overlapped = True
        try:
            yield
        finally:
            self._is_encoder_overlapped = False

    def _use(self, num: int) -> None:
        if getattr(self._mine, "num", 0) != num:
            torch.set_num_threads(num)
            self._mine.num = num
