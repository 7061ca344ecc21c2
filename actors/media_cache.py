"""What files came to, by their content: so that the same picture is decoded once, however often it is sent.

Keeps features as they go to the encoder, the least recently used given up first: its own where a caller keeps
much, so that it does not push out what others keep. Contents are known by the
hash of all their bytes and by how the model wants them, never by a name; a client's own names (`uuid`) only
point at contents. Everything is kept apart by `scope`, as the prefix cache keeps prompts apart: what one key
has sent changes no answer of another, nor how long it takes. Opens nothing itself; read next:
`actors/text/prompts.py`.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import trio

from .kernel.off_loop import off_loop

_T = TypeVar("_T")

_MAX_NAMES: Final = 16_384
"""Client's names in all, some 300 bytes each; the least recently used are forgotten first."""
_MUCH: Final = 0.25
"""Of all: a caller that keeps more makes room for itself first. Whoever is alone keeps all there is."""
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
class _Share:
    """What is kept for a caller that asked for it first, the least recently used in front."""

    keys: OrderedDict[MediaKey, None] = field(default_factory=OrderedDict)
    num_bytes: int = 0


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
        self._kept: OrderedDict[MediaKey, tuple[_T, str]] = OrderedDict()
        """Values, and for whom."""
        self._shares: dict[str, _Share] = {}
        self._names: OrderedDict[tuple[str, str], str] = OrderedDict()
        """Digests by scope and name."""
        self._making: dict[MediaKey, trio.Event] = {}
        self._counted = MediaCacheStatistics()

    def statistics(self) -> MediaCacheStatistics:
        """Counters since start, and gauges now."""
        self._counted.num_entries = len(self._kept)
        return self._counted

    def peek(self, key: MediaKey) -> _T | None:
        """What is kept, which counts as nothing."""
        found = self._kept.get(key)
        return None if found is None else found[0]

    async def get(self, key: MediaKey, make: Callable[[], Awaitable[_T]]) -> _T:
        """What is kept, or else is made now: once, also for several who ask at the same time.

        Raises what `make` does; of those who wait, the next tries again then, and where it was cancelled.
        """
        while (making := self._making.get(key)) is not None:
            await making.wait()
        if key in self._kept:
            found, caller = self._kept[key]
            self._kept.move_to_end(key)
            self._shares[caller].keys.move_to_end(key)
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
        self._names[scope, name] = digest
        self._names.move_to_end((scope, name))
        if len(self._names) > _MAX_NAMES:
            self._names.popitem(last=False)

    def named(self, scope: str, name: str) -> str | None:
        """The digest of the content that a client called so."""
        return self._names.get((scope, name))

    def _keep(self, key: MediaKey, value: _T) -> None:
        size = self._size(value)
        if size > self.max_bytes // 2:
            return
        share = self._shares.setdefault(key.caller, _Share())
        share.keys[key] = None
        share.num_bytes += size
        self._kept[key] = value, key.caller
        self._counted.num_kept_bytes += size
        while self._counted.num_kept_bytes > self.max_bytes:
            takes_much = share.num_bytes > self.max_bytes * _MUCH
            self._give_up(next(iter(share.keys if takes_much else self._kept)))

    def _give_up(self, key: MediaKey) -> None:
        value, caller = self._kept.pop(key)
        size, share = self._size(value), self._shares[caller]
        del share.keys[key]
        share.num_bytes -= size
        if not share.keys:
            del self._shares[caller]
        self._counted.num_kept_bytes -= size
        self._counted.num_evictions += 1

    def _size(self, value: _T) -> int:
        return _LEAST_BYTES + self._size_of(value)


async def digest_of(data: bytes) -> str:
    """The hash that a file is known by: SHA-256, for which processors have instructions."""
    return await off_loop(lambda: hashlib.sha256(data).hexdigest(), size=len(data), most_inline=_INLINE_BYTES)
