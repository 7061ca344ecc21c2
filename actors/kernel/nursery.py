"""A nursery for work with one result: the first thing that went wrong is raised as itself, not as a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


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
