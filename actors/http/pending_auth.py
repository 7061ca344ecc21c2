"""Sockets whose caller is not known yet, because its key comes by a frame: few, so that they cannot pile up.

Of an address, and of all, so many may wait. Where one more comes, one of that address (or of the one with
the most) gives way, chosen by chance: a client that opens sockets and sends no key closes mostly its own.
What else bounds them, by time and by what they may send, is in `actors/http/calls/routes.py` and
`realtime/calls/call.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ..callers import Caller

MIN_OF_ADDRESS: Final = 16
MAX_STRANGERS: Final = 1024
"""Each may send 128 KiB: 128 MiB in all."""


@dataclass(eq=False, frozen=True, slots=True)
class _Stranger:
    address: Caller
    give_way: Callable[[], None]


class Strangers:
    """Those that wait."""

    def __init__(self, max_of_address: int = 0) -> None:
        """`max_of_address`: connections that one address may have. Behind a proxy all come from one."""
        self.max_of_address = min(max(MIN_OF_ADDRESS, max_of_address), MAX_STRANGERS)
        self._of: dict[Caller, list[_Stranger]] = {}
        self._num = 0

    def __len__(self) -> int:
        return self._num

    def enter(self, address: Caller, give_way: Callable[[], None]) -> Callable[[], object]:
        """One more waits. `give_way` closes it; call what is given back where it waits no longer."""
        if len(self._of.get(address, ())) >= self.max_of_address:
            self._remove_one(self._of[address])
        elif self._num >= MAX_STRANGERS:
            self._remove_one(max(self._of.values(), key=len))
        stranger = _Stranger(address, give_way)
        self._of.setdefault(address, []).append(stranger)
        self._num += 1
        return partial(self._leave, stranger)

    def _remove_one(self, of_address: list[_Stranger]) -> None:
        stranger = random.choice(of_address)
        self._leave(stranger)
        stranger.give_way()

    def _leave(self, stranger: _Stranger) -> None:
        of_address = self._of.get(stranger.address, [])
        if stranger in of_address:
            of_address.remove(stranger)
            self._num -= 1
            if not of_address:
                del self._of[stranger.address]
