"""Work that may be long is done in a thread, so that the loop is everybody's; what is surely short is not.

A few threads at a time, of which callers take turns: many that work at once leave the loop's own thread no
processor, and what each of them holds (a long prompt's tokens take a hundred times its bytes) adds up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeVar

import trio

from ...engine.control_groups import num_processors
from .containment import contained
from .fair_semaphore import FairSemaphore
from .threads import in_thread

_T = TypeVar("_T")

INLINE_CHARS: Final = 2000
"""Text, or token ids, up to this long are read or written on the loop: a millisecond at most, less than a
thread costs the others."""
MAX_AT_ONCE: Final = 8
CALLER: Final[ContextVar[str]] = ContextVar("caller", default="")
"""On whose behalf a task works (`Lane.caller`)."""
_places: Final = trio.lowlevel.RunVar[FairSemaphore]("off_loop")


async def off_loop(work: Callable[[], _T], *, size: int, most_inline: int = INLINE_CHARS) -> _T:
    """Do `work` in a thread, but at once where its `size` says that it is short."""
    if size <= most_inline:
        with contained:
            return work()
    async with _of_this_run().held_by(CALLER.get()):
        return await in_thread(work)


def _of_this_run() -> FairSemaphore:
    try:
        return _places.get()
    except LookupError:
        _places.set(FairSemaphore(min(num_processors(), MAX_AT_ONCE)))
        return _places.get()
