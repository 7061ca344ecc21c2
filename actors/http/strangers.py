"""Sockets whose caller is not known yet, because its key comes by a frame: few, so that they cannot pile up.

Of an address, and of all, so many may wait; where there are more, the one that has waited longest gives way,
so that nobody is kept out by those who never say who they are. What else bounds them, by time and by what
they may send, is in `calls.py` and `realtime/call.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ..callers import Caller

MAX_OF_ADDRESS: Final = 16
"""A provider's calls may all come from the address of a proxy; each is a stranger for a few milliseconds."""
MAX_STRANGERS: Final = 256


class Strangers:
    """Those that wait, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[object, tuple[Caller, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, address: Caller, give_way: Callable[[], None]) -> Callable[[], object]:
        """One more waits. `give_way` closes it; call what is given back where it waits no longer."""
        of_address = [each for each, (whose, _) in self._waiting.items() if whose == address]
        if len(of_address) >= MAX_OF_ADDRESS:
            self._remove(of_address[0])
        elif len(self._waiting) >= MAX_STRANGERS:
            self._remove(next(iter(self._waiting)))
        stranger = object()
        self._waiting[stranger] = (address, give_way)
        return partial(self._waiting.pop, stranger, None)

    def _remove(self, stranger: object) -> None:
        _, give_way = self._waiting.pop(stranger)
        give_way()
