"""What files came to, by their content: so that the same picture is decoded once, however often it is sent.

Keeps features as they go to the encoder; of the scope that keeps most the least recently used are given up
first. Contents are known by the hash of all their bytes and by how the model wants them, never by a name; a
client's own names (`uuid`) only point at contents. Everything is kept apart by `scope`, as the prefix cache
keeps prompts apart: what one key has sent changes no answer of another, nor how long it takes. Opens nothing
itself; read next: `actors/text/prompts.py`.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import trio

from .kernel.off_loop import off_loop

_T = TypeVar("_T")
_K = TypeVar("_K")
_V = TypeVar("_V")

_MAX_NAMES: Final = 16_384
"""Client's names in all, some 300 bytes each; of the scope that has most the oldest are forgotten first."""
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
        self._kept: dict[str, OrderedDict[MediaKey, _T]] = {}
        """By scope, as the three below."""
        self._bytes: Counter[str] = Counter()
        self._names: dict[str, OrderedDict[str, str]] = {}
        """Digests by name."""
        self._num_names: Counter[str] = Counter()
        self._making: dict[MediaKey, trio.Event] = {}
        self._counted = MediaCacheStatistics()

    def statistics(self) -> MediaCacheStatistics:
        """Counters since start, and gauges now."""
        self._counted.num_entries = sum(map(len, self._kept.values()))
        return self._counted

    def peek(self, key: MediaKey) -> _T | None:
        """What is kept, which counts as nothing."""
        kept = self._kept.get(key.scope)
        return kept.get(key) if kept else None

    async def get(self, key: MediaKey, make: Callable[[], Awaitable[_T]]) -> _T:
        """What is kept, or else is made now: once, also for several who ask at the same time.

        Raises what `make` does; of those who wait, the next tries again then, and where it was cancelled.
        """
        while (making := self._making.get(key)) is not None:
            await making.wait()
        found = self.peek(key)
        if found is not None:
            self._kept[key.scope].move_to_end(key)
            self._counted.num_hits += 1
            return found
        self._counted.num_misses += 1
        self._making[key] = trio.Event()
        try:
            found = await make()
            self._keep(key, found)
        finally:
            self._making.pop(key).set()
        return found

    def call(self, scope: str, name: str, digest: str) -> None:
        """A client's name for a content from now on."""
        names = self._names.setdefault(scope, OrderedDict())
        names[name] = digest
        names.move_to_end(name)
        self._num_names[scope] = len(names)
        if self._num_names.total() > _MAX_NAMES:
            _forget_oldest(self._names, self._num_names, lambda _: 1, asks=scope)

    def named(self, scope: str, name: str) -> str | None:
        """The digest of the content that a client called so."""
        names = self._names.get(scope)
        return names.get(name) if names else None

    def _keep(self, key: MediaKey, value: _T) -> None:
        size = self._size(value)
        if size > self.max_bytes // 2:
            return
        self._kept.setdefault(key.scope, OrderedDict())[key] = value
        self._bytes[key.scope] += size
        while self._bytes.total() > self.max_bytes:
            _forget_oldest(self._kept, self._bytes, self._size, asks=key.scope)
            self._counted.num_evictions += 1
        self._counted.num_kept_bytes = self._bytes.total()

    def _size(self, value: _T) -> int:
        return _LEAST_BYTES + self._size_of(value)


def _forget_oldest(
    kept: dict[str, OrderedDict[_K, _V]], held: Counter[str], size_of: Callable[[_V], int], *, asks: str
) -> None:
    """Of the scope that holds most; of `asks` if it is one of those."""
    scope = max(held, key=lambda each: (held[each], each == asks))
    _, oldest = kept[scope].popitem(last=False)
    held[scope] -= size_of(oldest)
    if not kept[scope]:
        del kept[scope], held[scope]


async def digest_of(data: bytes) -> str:
    """The hash that a file is known by: SHA-256, for which processors have instructions."""
    return await off_loop(lambda: hashlib.sha256(data).hexdigest(), size=len(data), most_inline=_INLINE_BYTES)
