"""Who is connected, and which connection closes where there are too many: bounds for all and by address.

A connection *waits* where nothing is lost when it closes: it has no request in hand, or its client does not
read the answer. Where a bound is reached, a waiting connection makes room for the new one (of the same
address, where that has reached its own bound): first one that has shown no accepted key, then the one that
has waited longest. A new connection has a moment to send the head of its request before it may have to go.

Only where none waits long enough is a new one *spare*: it is told the server's health, and nothing else. So
whoever asks after the health is answered, however many others are connected.
"""

from __future__ import annotations

import resource
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from ..callers import give_back
from ..runtime.fair_semaphore import FairSemaphore
from ..telemetry.statistics import ConnectionStatistics
from .rate_limit import Allowance

_MAX_AUTO: Final = 4096
"""Connections that are allowed where descriptors would do for more."""
_MIN_RESERVE: Final = 32
"""Descriptors for files, pipes and decode processes, however few there are altogether."""
_MAX_SPARE: Final = 16
"""Spare ones that wait; the oldest makes room."""
_MAX_SPARE_IN_ALL: Final = 64
"""Those whose request was there with them are answered at once, and take no place that others wait for."""
KEY_SHOWN: Final = "sensorium.key_shown"
"""In a scope: what an application calls once it has accepted a key."""
Wait = Literal["idle", "head", "unread"]
_STAYS_S: Final[dict[Wait, float]] = {"idle": 0.0, "head": 0.25, "unread": 1.0}
"""How long one that waits need not make room: between two requests, for the head of one, and for its client
to read."""
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


@dataclass(eq=False, slots=True)
class Seat:
    """One connection's place."""

    address: str
    hang_up: Callable[[], None] = lambda: None
    """Closes the connection at once; what is unsent is dropped."""
    has_arrived: Callable[[], bool] = lambda: False
    """Whether bytes of it wait to be read."""
    is_spare: bool = False
    """For nothing but to ask after the server's health."""
    has_key: bool = False
    """A request of it has shown an accepted key."""
    has_begun: bool = False
    """Of the head that it waits for, bytes have been read."""
    has_requested: bool = False
    """It has sent the whole head of a request."""
    is_lingering: bool = False
    """It has been answered, and is being read out for as long as its client needs to see that."""
    is_held: bool = True
    """Counted; no longer where it has to go."""
    waits: Wait | None = None
    since: float = 0.0
    """When it began to wait so."""

    @property
    def is_unread(self) -> bool:
        """Whether its client has to read before more can be sent."""
        return self.waits == "unread"


class _Waiting:
    """Connections that wait, of each kind in the order in which they began to."""

    def __init__(self) -> None:
        self._queues: dict[tuple[bool, Wait | None], OrderedDict[Seat, None]] = {}

    def __len__(self) -> int:
        return sum(len(queue) for (_, kind), queue in self._queues.items() if kind != "unread")

    def __iter__(self) -> Iterator[Seat]:
        return (seat for queue in tuple(self._queues.values()) for seat in tuple(queue))

    def add(self, seat: Seat) -> None:
        """It waits from now on."""
        self._queues.setdefault((seat.has_key, seat.waits), OrderedDict())[seat] = None

    def discard(self, seat: Seat) -> None:
        """It waits no longer."""
        for key in ((seat.has_key, seat.waits), (not seat.has_key, seat.waits)):
            queue = self._queues.get(key)
            if queue is not None and seat in queue:
                del queue[seat]
                if not queue:
                    del self._queues[key]

    def first(self, now: float) -> Seat | None:
        """The one to make room."""
        longest = [next(iter(queue)) for queue in self._queues.values()]
        able = [seat for seat in longest if seat.waits and now - seat.since >= _STAYS_S[seat.waits]]
        return min(able, key=lambda seat: (seat.has_key, seat.since), default=None)


class Guard:
    """The connections of one listener."""

    def __init__(self, limits: ConnectionLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.large_bodies = Allowance(burst=_BODY_BYTES, per_s=_BODY_BYTES_PER_S)
        """Bytes of what large requests send, all together."""
        self.websocket_turns = FairSemaphore()
        """Of those that send much, all together."""
        self.statistics = ConnectionStatistics()
        self.is_closing = False
        """The server ends: no connection is kept for another request."""
        self._clock = clock
        self._num_of: Counter[str] = Counter()
        self._num_spare = 0
        self._waiting = _Waiting()
        self._waiting_of: dict[str, _Waiting] = {}
        self._spares: OrderedDict[Seat, None] = OrderedDict()
        """Those that wait."""

    def admit(self, address: str, *, has_sent: bool = False, is_proxy: bool = False) -> Seat | None:
        """A place for a new connection; None if there is none, not even a spare one.

        `has_sent` tells that bytes of it have arrived with it. That of a trusted proxy, `is_proxy`, has many
        clients: the bound of one address does not hold for it.
        """
        self.statistics.num_accepted += 1
        seat = Seat(address)
        if not is_proxy and self._num_of[address] >= self.limits.max_per_address:
            seat.is_spare = not self._evict(self._waiting_of.get(address))
        elif self.statistics.num_open - self._num_spare >= self.limits.max_connections:
            seat.is_spare = not self._evict(self._waiting)
        if seat.is_spare:
            self.statistics.num_refused += 1
            most = _MAX_SPARE_IN_ALL if has_sent else _MAX_SPARE
            if self._num_spare >= most and not self._evict_spare():
                return None
            self._num_spare += 1
        else:
            self._num_of[address] += 1
        self.statistics.num_open += 1
        if not has_sent:
            self.wait(seat, "head")
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
        seat.is_lingering, seat.has_begun = is_lingering, False
        if self.is_closing and not is_lingering:
            seat.hang_up()
        else:
            self.wait(seat, "idle" if seat.has_requested else "head")

    def begin(self, seat: Seat) -> None:
        """The first bytes of a head have come; the rest has a moment."""
        seat.has_begun = True
        self.wait(seat, "head")

    def wait(self, seat: Seat, kind: Wait) -> None:
        """The connection waits for its client from now on."""
        self.busy(seat)
        if not seat.is_held:
            return
        seat.waits, seat.since = kind, self._clock()
        if seat.is_spare:
            self._spares[seat] = None
        else:
            self._waiting.add(seat)
            self._waiting_of.setdefault(seat.address, _Waiting()).add(seat)
        self.statistics.num_idle = len(self._waiting)

    def busy(self, seat: Seat) -> None:
        """The connection waits no longer."""
        if seat.waits is None:
            return
        self._spares.pop(seat, None)
        if not seat.is_spare:
            self._waiting.discard(seat)
            of_address = self._waiting_of[seat.address]
            of_address.discard(seat)
            if not any(of_address):
                del self._waiting_of[seat.address]
        seat.waits = None
        self.statistics.num_idle = len(self._waiting)

    @contextmanager
    def unread(self, seat: Seat) -> Iterator[None]:
        """The client of a connection that is at work has to read before more can be sent to it."""
        if seat.waits is not None:  # it may have to make room in any case
            yield
            return
        self.wait(seat, "unread")
        try:
            yield
        finally:
            if seat.is_unread:
                self.busy(seat)

    def make_room(self) -> bool:
        """Close one that waits; whether there was one."""
        return self._evict_spare() or self._evict(self._waiting)

    def close(self) -> None:
        """The server ends: idle connections do so now, others after their answer."""
        self.is_closing = True
        for seat in [*self._waiting, *self._spares]:
            if seat.waits != "unread" and not seat.is_lingering:
                seat.hang_up()
                self.leave(seat)

    def _evict(self, waiting: _Waiting | None) -> bool:
        if waiting is None:
            return False
        return self._close_first(lambda: waiting.first(self._clock()))

    def _evict_spare(self) -> bool:
        """Of the address that has the most: a probe has sent nothing yet, either, when it is accepted."""

        def first() -> Seat | None:
            if answered := next((seat for seat in self._spares if seat.is_lingering), None):
                return answered
            num_of = Counter(seat.address for seat in self._spares)
            return max(
                self._spares, key=lambda seat: num_of[seat.address], default=None
            )  # the oldest of these

        return self._close_first(first)

    def _close_first(self, first: Callable[[], Seat | None]) -> bool:
        while (seat := first()) is not None:
            if seat.waits == "unread" or seat.is_lingering or seat.has_begun or not seat.has_arrived():
                seat.hang_up()
                self.leave(seat)
                self.statistics.num_evicted += 1
                return True
            self.busy(seat)  # its request is there, and is read as soon as the loop comes to it
        return False
