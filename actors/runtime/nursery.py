"""A nursery for work with one result: the first thing that went wrong is raised as itself, not as a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from types import TracebackType
from typing import TypeVar

import trio

from .panic_guard import defused

_T = TypeVar("_T")
_R = TypeVar("_R")


class open_work:  # noqa: N801 (a context manager's name)
    """`trio.open_nursery` for tasks that work on one answer, whose callers catch plain errors.

    Of several failures the first found is raised; the others are its consequences more often than not.
    No generator: the one of `asynccontextmanager` would be in a cycle with what is raised.
    """

    def __init__(self) -> None:
        self._manager = trio.open_nursery()

    async def __aenter__(self) -> trio.Nursery:
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        try:
            return await self._manager.__aexit__(kind, error, where)
        except BaseExceptionGroup as raised:
            first = first_error(defused(raised))
            if first is None:
                raise
        finally:
            del error, where
        try:
            raise first  # not inside the handler: the group holds it, and it would hold the group
        finally:
            del first


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
