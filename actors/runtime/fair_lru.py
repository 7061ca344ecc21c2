"""What is kept within a bound and shared fairly: the least recently used goes first, of whoever keeps most.

Whoever is alone keeps all there is. As soon as others want some too, who keeps more than a quarter gives way:
so nobody's few are pushed out by another's many, whether these came before or come behind. Holds no more than
it is told to and knows nothing of what it keeps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

_MUCH: Final = 0.25


class _Entry(NamedTuple, Generic[_V]):
    value: _V
    owner: str
    size: int


@dataclass(slots=True)
class _Share(Generic[_K]):
    """What one owner keeps, the least recently used in front."""

    keys: OrderedDict[_K, None] = field(default_factory=OrderedDict)
    size: int = 0


class FairLru(Generic[_K, _V]):
    """Keeps values up to `most` in the sum of their sizes. Every call takes the same time however much is
    kept."""

    def __init__(self, most: int) -> None:
        self.size = 0
        self._most = most
        self._entries: OrderedDict[_K, _Entry[_V]] = OrderedDict()
        self._shares: dict[str, _Share[_K]] = {}
        self._large: dict[str, _Share[_K]] = {}
        """Those above a quarter of all, fewer than four."""

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, key: _K) -> _V | None:
        """What is kept, which counts as no use of it."""
        found = self._entries.get(key)
        return None if found is None else found.value

    def get(self, key: _K) -> _V | None:
        """What is kept, used just now."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        self._shares[found.owner].keys.move_to_end(key)
        return found.value

    def keep(self, key: _K, value: _V, owner: str, size: int = 1) -> int:
        """Keep it instead of what had the key; returns how many others were given up for it.

        The size of one may be at most half of all."""
        assert size <= self._most // 2, "it would leave nothing to others"
        if key in self._entries:
            self._give_up(key)
        self._entries[key] = _Entry(value, owner, size)
        share = self._shares.setdefault(owner, _Share())
        share.keys[key] = None
        self._grow(owner, share, size)
        num_given_up = 0
        while self.size > self._most:
            self._give_up(self._first_to_go(key))
            num_given_up += 1
        return num_given_up

    def _first_to_go(self, new: _K) -> _K:
        """The oldest of who keeps most, or of all; never what is new, behind which there is another one."""
        large = [share for share in self._large.values() if next(iter(share.keys)) != new]
        keys = max(large, key=lambda share: share.size).keys if large else self._entries
        return next(iter(keys))

    def _give_up(self, key: _K) -> None:
        entry = self._entries.pop(key)
        share = self._shares[entry.owner]
        del share.keys[key]
        self._grow(entry.owner, share, -entry.size)

    def _grow(self, owner: str, share: _Share[_K], size: int) -> None:
        share.size += size
        self.size += size
        if share.size > self._most * _MUCH:
            self._large[owner] = share
        else:
            self._large.pop(owner, None)
        if not share.keys:
            del self._shares[owner]
