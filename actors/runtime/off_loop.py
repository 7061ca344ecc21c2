"""Work that may be long is done in a thread, so that the loop is everybody's; what is surely short is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from .compute_pool import compute
from .panic_guard import contained

_T = TypeVar("_T")

INLINE_CHARS: Final = 2000
"""Text, or token ids, up to this long are read or written on the loop: a millisecond at most, less than a
thread costs the others."""


async def off_loop(work: Callable[[], _T], *, size: int, most_inline: int = INLINE_CHARS) -> _T:
    """Do `work` in a thread, but at once where its `size` says that it is short."""
    if size <= most_inline:
        with contained:
            return work()
    return await compute(work)
