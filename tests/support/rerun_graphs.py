"""A graph backend that does the recorded work again, on any device, and does not let the host's part change.

Like a CUDA graph it does what was recorded, in the memory it was recorded with. What a real one also fixes,
the decisions the host takes in between, is fixed here only as far as they follow from the batch's own
numbers (`num_queries`, shapes): those are the recorded ones too.
"""

from __future__ import annotations

from collections.abc import Callable


class RerunGraphs:
    """Counts what is recorded and replayed."""

    def __init__(self) -> None:
        self.num_recorded = 0
        self.num_replayed = 0

    def record(self, work: Callable[[], object]) -> Callable[[], object]:
        """Twice, as a CUDA graph does it: once before the recording, once for it."""
        work()
        work()
        self.num_recorded += 1

        def replay() -> None:
            self.num_replayed += 1
            work()

        return replay
