"""The threads in which this process computes: few, for the one queue of all that is long.

They compete for processors and for Python's lock with the loop, which answers everyone. So live work
(`Lane.service`) has as many places as there are processors, and all other work together as many again:
interactive before batch, callers in turn. While anybody speaks, other work has one fewer, at least one, and
is done in threads that leave the processors to others (`thread_priority.py`). Live work takes milliseconds;
other work that may be long calls `give_way` now and then, and so keeps no caller waiting for longer than one
of its pieces. Work that only waits for the system has threads of its own (`threads.py`). All pools are in
`docs/operate.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeVar, TypeVarTuple, get_args

import trio

from ...engine.control_groups import num_processors
from ...protocols.engine.messages import INTERACTIVE, Lane, Service
from .fair_semaphore import FairSemaphore, Place
from .thread_priority import from_caller, nicely
from .threads import MAX_WAIT_S, in_thread

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

LANE: Final[ContextVar[Lane]] = ContextVar("lane", default=INTERACTIVE)
"""On whose behalf a task works, and in which class of service."""
_SERVICES: Final[tuple[Service, ...]] = get_args(Service)
LINGER_S: Final = 1.0
"""Somebody still speaks so long after the last live work: there is some for every piece of sound."""
_place: Final[ContextVar[tuple[FairSemaphore, Place] | None]] = ContextVar("place", default=None)
"""Of the work that this thread does."""


@contextmanager
def working_for(lane: Lane) -> Iterator[None]:
    """Within the context this task, and those it starts, work in `lane`."""
    token = LANE.set(lane)
    try:
        yield
    finally:
        LANE.reset(token)


async def compute(work: Callable[[*_Ts], _T], *args: *_Ts, max_wait_s: float = MAX_WAIT_S) -> _T:
    """`work(*args)`, done in a thread when its turn has come. Raises what it raises, and OverloadedError as
    `in_thread` does.

    Cancelled, it waits for work that has begun, unless that calls `give_way`.
    """
    pool, lane = _of_this_run(), LANE.get()
    do: Callable[[], _T] = partial(work, *args)
    places = pool.places(lane)
    async with places.held_by(lane.caller, (_SERVICES.index(lane.service), lane.priority)) as place:
        token = _place.set((places, place))
        try:
            if places is pool.others and pool.is_live:
                do = partial(nicely, do)
            return await in_thread(do, limiter=pool.threads, max_wait_s=max_wait_s)
        finally:
            _place.reset(token)


def give_way() -> None:
    """Let work go first whose turn it is. To be called every few tens of milliseconds by long work.

    Raises Cancelled where nobody wants the work any more: it is to end. In other threads it does nothing.
    """
    found = _place.get()
    if found is not None:
        from_caller(partial(_give_way, *found))


def _give_way(places: FairSemaphore, place: Place) -> None:
    trio.from_thread.check_cancelled()
    if places.num_waiting:
        trio.from_thread.run(places.give_way, place)


class _Pool:
    """Of one run of the loop."""

    def __init__(self, num_processors: int) -> None:
        self._num_processors = num_processors
        self._live_at = -math.inf
        self.live = FairSemaphore(num_processors)
        self.others = FairSemaphore(num_processors)
        self.threads = trio.CapacityLimiter(math.inf)
        """No bound of its own: who has no place has no thread."""

    @property
    def is_live(self) -> bool:
        """Whether anybody speaks."""
        return trio.current_time() < self._live_at + LINGER_S

    def places(self, lane: Lane) -> FairSemaphore:
        """Those that work takes."""
        if lane.service == "live":
            self._live_at = trio.current_time()
        self.others.num_places = max(1, self._num_processors - self.is_live)
        return self.live if lane.service == "live" else self.others


_pool: Final = trio.lowlevel.RunVar[_Pool]("computing")


def _of_this_run() -> _Pool:
    try:
        return _pool.get()
    except LookupError:
        _pool.set(_Pool(num_processors()))
        return _pool.get()
