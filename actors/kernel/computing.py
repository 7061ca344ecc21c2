"""The threads in which this process computes: few, for the one queue of all that is long.

As many threads as there are processors compete for Python's lock and for cores with the loop, which answers
everyone. So live work (`Lane.service`) has as many places as there are processors, and all other work
together one fewer, at least one: interactive before batch, callers in turn. Live work takes milliseconds;
other work that may be long calls `give_way` now and then, and so keeps no caller waiting for longer than one
of its pieces. Work that only waits for the system has threads of its own (`threads.py`). All pools are in
`docs/operate.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar, TypeVarTuple, get_args

import trio

from ...engine.control_groups import num_processors
from ...protocols.messages import INTERACTIVE, Lane, Service
from .fair_semaphore import FairSemaphore, Place
from .threads import MAX_WAIT_S, in_thread

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

LANE: Final[ContextVar[Lane]] = ContextVar("lane", default=INTERACTIVE)
"""On whose behalf a task works, and in which class of service."""
_SERVICES: Final[tuple[Service, ...]] = get_args(Service)
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
    rank = _SERVICES.index(lane.service), lane.priority
    places = pool.live if lane.service == "live" else pool.others
    async with places.held_by(lane.caller, rank) as place:
        token = _place.set((places, place))
        try:
            return await in_thread(work, *args, limiter=pool.threads, max_wait_s=max_wait_s)
        finally:
            _place.reset(token)


def give_way() -> None:
    """Let work go first whose turn it is. To be called every few tens of milliseconds by long work.

    Raises Cancelled where nobody wants the work any more: it is to end. In other threads it does nothing.
    """
    found = _place.get()
    if found is None:
        return
    places, place = found
    trio.from_thread.check_cancelled()
    if places.num_waiting:
        trio.from_thread.run(places.give_way, place)


@dataclass(frozen=True, slots=True)
class _Pool:
    live: FairSemaphore
    others: FairSemaphore
    threads: trio.CapacityLimiter
    """No bound of its own: who has no place has no thread."""


_pool: Final = trio.lowlevel.RunVar[_Pool]("computing")


def _of_this_run() -> _Pool:
    try:
        return _pool.get()
    except LookupError:
        num = num_processors()
        pool = _Pool(FairSemaphore(num), FairSemaphore(max(1, num - 1)), trio.CapacityLimiter(math.inf))
        _pool.set(pool)
        return pool
