"""What files came to, by their content: so that the same picture is decoded once, however often it is sent.

Keeps features as they go to the encoder, shared fairly between callers (`actors/runtime/fair_lru.py`).
Contents are known by the hash of all their bytes and by how the model wants them, never by a name; a client's
own names (`uuid`) only point at contents. Everything is kept apart by `scope`, as the prefix cache keeps
prompts apart: what one key has sent changes no answer of another, nor how long it takes. Opens nothing
itself; read next: `actors/text/prompts.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import trio

from ..runtime.fair_lru import FairLru
from ..runtime.off_loop import off_loop

_T = TypeVar("_T")

_MAX_NAMES: Final = 16_384
"""Clients' names in all, some 300 bytes each."""
_LEAST_BYTES: Final = 1024
"""What an entry counts beside its features."""
_INLINE_BYTES: Final = 256 * 1024
"""Hashed on the loop, a fifth of a millisecond; more in a thread."""


@dataclass(frozen=True, slots=True)
class MediaKey:
    """One content as one model wants it, for one scope."""

    scope: str
    digest: str
    way: str
    """What is made of it: kind and configuration."""
    caller: str = field(default="", compare=False)
    """Who asks (`Lane.caller`)."""


@dataclass(slots=True)
class MediaCacheStatistics:
    """Counters since start, and gauges now."""

    num_hits: int = 0
    num_misses: int = 0
    num_evictions: int = 0
    num_entries: int = 0
    num_kept_bytes: int = 0


class MediaCache(Generic[_T]):
    """Keeps at most `max_bytes` of values; 0 keeps none. `size_of` tells a value's bytes."""

    def __init__(self, max_bytes: int, size_of: Callable[[_T], int]) -> None:
        self.max_bytes = max_bytes
        self._size_of = size_of
        self._kept: FairLru[MediaKey, _T] = FairLru(max_bytes)
        self._digests: FairLru[tuple[str, str], str] = FairLru(_MAX_NAMES)
        """By scope and name."""
        self._making: dict[MediaKey, trio.Event] = {}
        self._counted = MediaCacheStatistics()

    def statistics(self) -> MediaCacheStatistics:
        """Counters since start, and gauges now."""
        self._counted.num_entries = len(self._kept)
        self._counted.num_kept_bytes = self._kept.size
        return self._counted

    def peek(self, key: MediaKey) -> _T | None:
        """What is kept, which counts as nothing."""
        return self._kept.peek(key)

    async def get(self, key: MediaKey, make: Callable[[], Awaitable[_T]]) -> _T:
        """What is kept, or else is made now: once, also for several who ask at the same time.

        Raises what `make` does; of those who wait, the next tries again then, and where it was cancelled.
        """
        while (making := self._making.get(key)) is not None:
            await making.wait()
        if (kept := self._kept.get(key)) is not None:
            self._counted.num_hits += 1
            return kept
        self._counted.num_misses += 1
        self._making[key] = trio.Event()
        try:
            found = await make()
            self._keep(key, found)
        finally:
            self._making.pop(key).set()
        return found

    def call(self, key: MediaKey, name: str) -> None:
        """A client's name for a content from now on, within the key's scope."""
        self._digests.keep((key.scope, name), key.digest, key.caller)

    def named(self, scope: str, name: str) -> str | None:
        """The digest of the content that a client called so."""
        return self._digests.get((scope, name))

    def _keep(self, key: MediaKey, value: _T) -> None:
        size = _LEAST_BYTES + self._size_of(value)
        if size <= self.max_bytes // 2:
            self._counted.num_evictions += self._kept.keep(key, value, key.caller, size)


async def digest_of(data: bytes) -> str:
    """The hash that a file is known by: SHA-256, for which processors have instructions."""
    return await off_loop(lambda: hashlib.sha256(data).hexdigest(), size=len(data), most_inline=_INLINE_BYTES)
