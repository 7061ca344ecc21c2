"""A nursery for work with one result: the first thing that went wrong is raised as itself, not as a group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from typing import TypeVar

import trio

_T = TypeVar("_T")
_R = TypeVar("_R")


@asynccontextmanager
async def open_work() -> AsyncIterator[trio.Nursery]:
    """`trio.open_nursery` for tasks that work on one answer, whose callers catch plain errors.

    Of several failures the first found is raised; the others are its consequences more often than not.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        error = first_error(group)
        if error is None:
            raise
        raise error from group


async def all_of(
    work: Callable[[_T], Awaitable[_R]], given: Iterable[_T], *, at_once: int | None = None
) -> list[_R]:
    """What `work` makes of each, in order; all are worked on together, or so many at a time.

    The first failure ends the others, and is raised.
    """
    found: dict[int, _R] = {}
    places = nullcontext() if at_once is None else trio.CapacityLimiter(at_once)

    async def one(index: int, each: _T) -> None:
        async with places:
            found[index] = await work(each)

    async with open_work() as nursery:
        for index, each in enumerate(given):
            nursery.start_soon(one, index, each)
    return [found[index] for index in range(len(found))]


def first_error(group: BaseExceptionGroup[BaseException]) -> Exception | None:
    """The first `Exception` inside nested groups; None if there are only cancellations."""
    for inner in group.exceptions:
        if isinstance(inner, BaseExceptionGroup):
            found = first_error(inner)
            if found is not None:
                return found
        elif isinstance(inner, Exception):
            return inner
    return None
