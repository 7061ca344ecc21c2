"""Whether somebody speaks to the engines of one process: they share its cores, and know this of each other.

Counted in steps of all of them together. Which requests are live, and what follows for an engine's own steps,
is in `service_classes.py`.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakSet

LINGER_STEPS: Final = 256
"""About a second on a CPU: more than lies between two requests of anybody who speaks."""


class Presence:
    """Heard from every scheduler before each of its steps; one that is given up is forgotten."""

    def __init__(self) -> None:
        self._speaking: WeakSet[object] = WeakSet()
        self._since = LINGER_STEPS

    @property
    def is_quiet(self) -> bool:
        """No live request wants anything of any engine, nor is another one on its way."""
        return self._since > LINGER_STEPS

    def is_elsewhere(self, engine: object) -> bool:
        """A live request wants something of another engine now."""
        return any(each is not engine for each in self._speaking)

    def note(self, engine: object, *, is_live: bool) -> None:
        """A step of `engine` begins; `is_live`: a live request wants something of it."""
        if is_live:
            self._speaking.add(engine)
        else:
            self._speaking.discard(engine)
        self._since = 0 if self._speaking else self._since + 1
