"""Whether a server takes work, from what its probes and requests showed. Pure; time is given.

Two failures in a row take a server out, two successes bring it back, so that one late answer moves nobody.
Its own word, 503 at `/health`, counts at once. A server that has shown no sign of life for long is dead: only
then what it has in hand is given up. `actors/gateway/probes.py` asks.
"""

from __future__ import annotations

from typing import Final, Literal

State = Literal["new", "up", "down", "dead"]

_FAILURES: Final = 2
_SUCCESSES: Final = 2


class Health:
    """Of one server."""

    def __init__(self, *, dead_after_s: float) -> None:
        self._dead_after_s = dead_after_s
        self._num_failures = 0
        self._num_successes = 0
        self._failing_since = 0.0
        self.state: State = "new"

    @property
    def takes_work(self) -> bool:
        """Whether it may be given something new. One that has not been asked yet may."""
        return self.state in ("new", "up")

    def succeeded(self) -> None:
        """A probe was answered: it takes work."""
        self._num_failures = 0
        self._num_successes += 1
        if self.state == "new" or self._num_successes >= _SUCCESSES:
            self.state = "up"
        elif self.state == "dead":
            self.state = "down"

    def refused(self) -> None:
        """It lives, and takes no work: it says so itself."""
        self._num_failures = self._num_successes = 0
        self.state = "down"

    def failed(self, now: float) -> None:
        """A probe was not answered, or a request found nobody there."""
        if not self._num_failures:
            self._failing_since = now
        self._num_successes = 0
        self._num_failures += 1
        if self.state == "dead":
            return
        if self._num_failures >= _FAILURES:
            is_dead = now - self._failing_since >= self._dead_after_s
            self.state = "dead" if is_dead else "down"
