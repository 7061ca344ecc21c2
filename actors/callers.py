"""Who asks, and what is fair between those who do.

A caller is an API key (ephemeral keys count for the key that made them); where no key is needed, an address;
behind a gateway, whom the gateway has signed for (`actors/transport/trusted_proxies.py`).
Every bound that callers share knows what each of them holds of it, and keeps one of two rules:

- What is held until its owner lets go of it (requests in hand, live sessions): nobody holds more than `GREED`
  times what was free when it took the last of them, and whoever holds none takes what is free (`has_room`).
- What can be taken away (sessions that wait for a lost client, ephemeral keys; what caches keep, in
  `actors/runtime/fair_lru.py`): when all is held, the caller that holds most gives way (`greediest`).

So a newcomer finds a place however much one other caller wants, and callers that all want more end up with
the same. Where there is but one caller, it has everything.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from ..protocols.errors import OverloadedError

_K = TypeVar("_K", bound=Hashable)

GREED: Final = 7
"""So that one caller gets seven eighths, and two get seven fifteenths each. An eighth of fewer than eight
places is none: there whoever comes first may take them all, because to keep one of two would be half."""
_IPV6_NETWORK: Final = 64
"""Bits of an IPv6 address that its owner cannot choose."""


@dataclass(frozen=True, slots=True)
class Caller:
    """`name` is the digest of a key, or an address."""

    name: str
    has_key: bool = False

    def may_resume(self, owner: Caller) -> bool:
        """Whether a session of `owner` may be its own: an address may change on the way, a key does not."""
        return self == owner or not owner.has_key


ANONYMOUS: Final = Caller("")


def caller_by_key(key: str) -> Caller:
    """The holder of an accepted key."""
    return Caller(hashlib.sha256(key.encode(errors="replace")).hexdigest(), has_key=True)


def caller_by_address(host: str) -> Caller:
    """Whoever comes from there; an IPv6 network is one caller."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return Caller(host)
    if address.version == 6:
        return Caller(str(ipaddress.ip_network((address, _IPV6_NETWORK), strict=False)))
    return Caller(str(address))


def has_room(num_held: int, num_taken: int, most: int, num: int = 1, *, is_shared: bool = True) -> bool:
    """Whether a caller that holds `num_held` may take `num` more of `most` places, `num_taken` of which are
    taken. Not `is_shared`: nobody else may come."""
    num_free = most - num_taken - (num - 1)  # when it takes the last of them
    if num_free <= 0:
        return False
    return not is_shared or num_held == 0 or num_held + num <= GREED * num_free


def give_back(held: Counter[_K], owner: _K, num: int = 1) -> None:
    """Have an owner hold so many less; one that holds none is forgotten."""
    held[owner] -= num
    if held[owner] <= 0:
        del held[owner]


def greediest(held: Mapping[Caller, int], requester: Caller) -> Caller:
    """Who holds most; `requester` itself if it is one of those."""
    return max(held, key=lambda caller: (held[caller], caller == requester))


class Shares:
    """What callers have in hand of one kind, at most so many at once; `what` they are called in errors."""

    def __init__(self, most: int, what: str, *, share: Callable[[int], int] = lambda most: most) -> None:
        """`share` gives this process' part of a bound that others keep with it."""
        self._bound = most
        self._share = share
        self._what = what
        self._held: Counter[Caller] = Counter()

    @property
    def _most(self) -> int:
        return self._share(self._bound)

    def of(self, caller: Caller) -> int:
        """How many a caller has."""
        return self._held[caller]

    def total(self) -> int:
        """How many there are."""
        return self._held.total()

    def check(self, caller: Caller, num: int = 1, *, is_shared: bool) -> None:
        """Raise OverloadedError if that many more are too many for a caller. `is_shared` as in `has_room`."""
        num_held, num_taken, most = self._held[caller], self._held.total(), self._most
        if has_room(num_held, num_taken, most, num, is_shared=is_shared):
            return
        whose = "Too many" if num_taken >= most else f"You have {num_held} of {most}"
        more = "" if num == 1 else f", and ask for {num}"
        raise OverloadedError(f"{whose} {self._what} in hand{more}; try again.", retry_after_s=1.0)

    @contextmanager
    def holding(self, caller: Caller, num: int = 1) -> Iterator[None]:
        """Have them for the duration."""
        self._held[caller] += num
        try:
            yield
        finally:
            give_back(self._held, caller, num)
