"""Names that clients write, resolved: in threads of their own, which callers share.

A name server may take half a minute to say nothing, and no thread can be stopped that waits for it. So one
that nobody wants any more keeps its place until it returns, and whoever asks for many slow names keeps
nobody else waiting. Knows no policy: which addresses may be connected to says
`actors/config/blocked_networks.py`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Final, cast

import trio

from ..runtime.threads import in_thread
from .fair_slots import Places

Resolve = Callable[[str, int], Sequence[str]]
"""The numeric addresses of a name, in the order they are to be tried; may raise OSError."""

MAX_RESOLVING: Final = 16
"""Threads that wait for DNS."""
_MAX_ADDRESSES: Final = 16
"""Of one name: an answer of DNS may hold thousands, and each is vetted."""


class Names:
    """Resolves for all that a server does on behalf of clients."""

    def __init__(self, resolve: Resolve | None = None) -> None:
        self._resolve = resolve or resolve_by_system
        self._places = Places(MAX_RESOLVING)

    async def addresses(self, host: str, port: int, caller: str = "") -> Sequence[str]:
        """Where a name leads, nothing if that is not known; `caller` is who asks, empty where all are one.

        Cancelling gives up at once; its thread goes on to its end, and so long counts for its caller.
        """
        share = cast("trio.CapacityLimiter", _Share(self._places, caller))
        try:
            return await in_thread(self._resolve, host, port, abandon_on_cancel=True, limiter=share)
        except (OSError, UnicodeError):
            return ()


class _Share:
    """A caller's part of the threads; of trio's `CapacityLimiter` what a thread asks for."""

    def __init__(self, places: Places, caller: str) -> None:
        self._places = places
        self._caller = caller

    async def acquire_on_behalf_of(self, _borrower: object) -> None:
        """Before the thread."""
        await self._places.take(self._caller)

    def release_on_behalf_of(self, _borrower: object) -> None:
        """After the thread, also where nobody has waited for it."""
        self._places.leave(self._caller)


def resolve_by_system(host: str, port: int) -> list[str]:
    """As the system's resolver has it, each address once, the first few."""
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))[:_MAX_ADDRESSES]
