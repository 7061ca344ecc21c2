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
MAX_UNAUTHENTICATED: Final = 1024
"""Each may send 128 KiB: 128 MiB in all."""


@dataclass(eq=False, frozen=True, slots=True)
class _PendingClient:
    address: Caller
    give_way: Callable[[], None]


class PendingAuth:
    """Those that wait."""

    def __init__(self, max_of_address: int = 0) -> None:
        """`max_of_address`: connections that one address may have. Behind a proxy all come from one."""
        self.max_of_address = min(max(MIN_OF_ADDRESS, max_of_address), MAX_UNAUTHENTICATED)
        self._of: dict[Caller, list[_PendingClient]] = {}
        self._num = 0

    def __len__(self) -> int:
        return self._num

    def enter(self, address: Caller, give_way: Callable[[], None]) -> Callable[[], object]:
        """One more waits. `give_way` closes it; call what is given back where it waits no longer."""
        if len(self._of.get(address, ())) >= self.max_of_address:
            self._remove_one(self._of[address])
        elif self._num >= MAX_UNAUTHENTICATED:
            self._remove_one(max(self._of.values(), key=len))
        pending_client = _PendingClient(address, give_way)
        self._of.setdefault(address, []).append(pending_client)
        self._num += 1
        return partial(self._leave, pending_client)

    def _remove_one(self, of_address: list[_PendingClient]) -> None:
        pending_client = random.choice(of_address)
        self._leave(pending_client)
        pending_client.give_way()

    def _leave(self, pending_client: _PendingClient) -> None:
        of_address = self._of.get(pending_client.address, [])
        if pending_client in of_address:
            of_address.remove(pending_client)
            self._num -= 1
            if not of_address:
                del self._of[pending_client.address]
