"""Who is connected, and who has to go when there are too many: bounds on connections, all and by address.

A connection without a request in hand is *idle*: nothing is lost when it is closed, since every client has to
expect that. Where a bound is reached, the one that has been idle longest makes room for the new one (of the
same address, where that has reached its own bound), so that idle connections keep nobody out. Only where all
have requests or sessions in hand is a new one *spare*: a few of those are served, and told nothing but the
server's health.
"""

from __future__ import annotations

import resource
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..callers import give_back
from ..kernel.fair_semaphore import FairSemaphore
from .allowance import Allowance

_MAX_AUTO: Final = 4096
"""Connections that are allowed where descriptors would do for more."""
_MIN_RESERVE: Final = 32
"""Descriptors for files, pipes and decode processes, however few there are altogether."""
_MAX_SPARE: Final = 16
_BODY_BYTES: Final = 4 * 1024 * 1024
_BODY_BYTES_PER_S: Final = 64 * 1024 * 1024
"""Half a gigabit: reading more than that a second keeps the loop, and Python's lock, from live speech."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds on connections; see `ListenConfig` for what each is for."""

    max_connections: int
    max_per_address: int
    idle_s: float


def connection_limits(max_connections: int, max_per_address: int, *, idle_s: float) -> ConnectionLimits:
    """Limits that leave a third of the process' descriptors to others; 0 asks for the default of a bound."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = 2 * _MAX_AUTO
    most = max(8, limit - max(_MIN_RESERVE, limit // 3))
    total = min(max_connections or _MAX_AUTO, most)
    return ConnectionLimits(total, min(max_per_address or max(1, total // 2), total), idle_s)


@dataclass(slots=True)
class ConnectionStatistics:
    """Counted since the start."""

    num_accepted: int = 0
    num_left: int = 0
    """Those that their peer had closed, without a word, before we looked."""
    num_evicted: int = 0
    """Idle ones that made room for others."""
    num_refused: int = 0
    """Those that found no room."""
    num_floods: int = 0
    """Those that ended because of their rate of frames."""
    num_open: int = 0
    num_idle: int = 0


@dataclass(eq=False, slots=True)
class Seat:
    """One connection's place."""

    address: str
    hang_up: Callable[[], None] = lambda: None
    """Closes the connection at once."""
    is_spare: bool = False
    """For nothing but to ask after the server's health."""
    is_lingering: bool = False
    """It has been answered, and is being read out for as long as its client needs to see that."""
    is_held: bool = True
    """Counted; no longer where it has to go."""


class Guard:
    """The connections of one listener."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.large_bodies = Allowance(burst=_BODY_BYTES, per_s=_BODY_BYTES_PER_S)
        """Bytes of what large requests send, all together."""
        self.websocket_turns = FairSemaphore()
        """Of those that send much, all together."""
        self.statistics = ConnectionStatistics()
        self.is_closing = False
        """The server ends: no connection is kept for another request."""
        self._num_of: Counter[str] = Counter()
        self._num_spare = 0
        self._idle: OrderedDict[Seat, None] = OrderedDict()
        """In the order in which they became idle."""
        self._idle_of: dict[str, OrderedDict[Seat, None]] = {}

    def admit(self, address: str) -> Seat | None:
        """A place for a new connection; None if there is none, not even a spare one."""
        self.statistics.num_accepted += 1
        seat = Seat(address)
        if self._num_of[address] >= self.limits.max_per_address:
            seat.is_spare = not self._evict(self._idle_of.get(address))
        elif self.statistics.num_open - self._num_spare >= self.limits.max_connections:
            seat.is_spare = not self._evict(self._idle)
        if seat.is_spare:
            self.statistics.num_refused += 1
            if self._num_spare >= _MAX_SPARE:
                return None
            self._num_spare += 1
        else:
            self._num_of[address] += 1
        self.statistics.num_open += 1
        return seat

    def leave(self, seat: Seat) -> None:
        """The connection is over."""
        self.busy(seat)
        if not seat.is_held:
            return
        seat.is_held = False
        self.statistics.num_open -= 1
        if seat.is_spare:
            self._num_spare -= 1
            return
        give_back(self._num_of, seat.address)

    def idle(self, seat: Seat, *, is_lingering: bool = False) -> None:
        """The connection waits for a request, and may be closed meanwhile to make room."""
        seat.is_lingering = is_lingering
        if self.is_closing and not is_lingering:
            seat.hang_up()
        elif not seat.is_spare:
            self._idle[seat] = None
            self._idle_of.setdefault(seat.address, OrderedDict())[seat] = None
        self.statistics.num_idle = len(self._idle)

    def busy(self, seat: Seat) -> None:
        """The connection waits no longer."""
        if seat not in self._idle:
            return
        del self._idle[seat]
        of_address = self._idle_of[seat.address]
        del of_address[seat]
        if not of_address:
            del self._idle_of[seat.address]
        self.statistics.num_idle = len(self._idle)

    def make_room(self) -> bool:
        """Close the connection that has been idle longest; whether there was one."""
        return self._evict(self._idle)

    def close(self) -> None:
        """The server ends: idle connections do so now, others after their answer."""
        self.is_closing = True
        for seat in [each for each in self._idle if not each.is_lingering]:
            self.leave(seat)
            seat.hang_up()

    def _evict(self, idle: OrderedDict[Seat, None] | None) -> bool:
        if not idle:
            return False
        seat = next(iter(idle))
        self.leave(seat)
        self.statistics.num_evicted += 1
        seat.hang_up()
        return True
