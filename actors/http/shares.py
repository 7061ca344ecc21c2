"""What callers have in hand of one kind, requests or answers, shared as `actors/callers.py` says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ...protocols.errors import OverloadedError
from ..callers import Caller, give_back, has_room


class Shares:
    """At most so many at once, of all callers; `what` they are called in errors."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._held: Counter[Caller] = Counter()

    def of(self, caller: Caller) -> int:
        """How many a caller has."""
        return self._held[caller]

    def total(self) -> int:
        """How many there are."""
        return self._held.total()

    def check(self, caller: Caller, num: int = 1, *, is_shared: bool) -> None:
        """Raise OverloadedError if that many more are too many for a caller. `is_shared` as in `has_room`."""
        num_held, num_taken = self._held[caller], self._held.total()
        if has_room(num_held, num_taken, self._most, num, is_shared=is_shared):
            return
        whose = "Too many" if num_taken >= self._most else f"You have {num_held} of {self._most}"
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
