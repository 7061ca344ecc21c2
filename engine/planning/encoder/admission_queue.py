"""The line of claims that wait for room in the ledger of encoder outputs: by class, then by caller in turn.

The first of the best class is next; those of its class whose contents are there already may pass it. Once
`max_overtakes` claims of its own class or better ones passed the first of a class, it is owed: it is next,
before better ones, and nobody passes it. Then everybody queues up, those who hold let go, and it gets its
room however much it is. If several are owed, the worst is next. So a claim waits behind worse ones only as
they are owed: behind one of each worse class, and one more for every `max_overtakes` that pass that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NewType

from ....protocols.engine.messages import ItemKey, Lane
from ..fair_turns import FairTurns
from ..service_classes import SERVICES

Ticket = NewType("Ticket", int)
"""One holder's claim: made for `need`, given up by `release`, whatever became of it in between."""

MAX_OVERTAKES: Final = 32
"""Claims of its own class (on what is there already) or a better one that may pass the first of a class."""


@dataclass(frozen=True, slots=True)
class WaitingClaim:
    """What `ticket` waits for; `service` is its class, a place in `SERVICES`."""

    ticket: Ticket
    service: int
    items: tuple[ItemKey, ...]
    caller: str
    turn: int


class ClaimLine:
    """Those who wait."""

    def __init__(self, max_overtakes: int) -> None:
        self._max_overtakes = max_overtakes
        self._lines: list[dict[Ticket, WaitingClaim]] = [{} for _ in SERVICES]  # each in order of the turns
        self._turns = [FairTurns() for _ in SERVICES]
        self._num_passed = [0] * len(SERVICES)  # how many passed the present first of each class

    def __contains__(self, ticket: Ticket) -> bool:
        return any(ticket in line for line in self._lines)

    def num_waiting(self, service: int) -> int:
        """Claims of this class or a better one."""
        return sum(map(len, self._lines[: service + 1]))

    def add(self, ticket: Ticket, lane: Lane, items: tuple[ItemKey, ...]) -> WaitingClaim:
        """Queue one, behind those of its class whose turn is before that of its caller."""
        service = SERVICES.index(lane.service)
        line = self._lines[service]
        turns = (each.turn for each in line.values() if each.caller == lane.caller)
        turn = self._turns[service].take(max(turns, default=0))
        claim = WaitingClaim(ticket, service, items, lane.caller, turn)
        later = [each for each in line.values() if each.turn > turn]
        for each in (claim, *later):
            line.pop(each.ticket, None)
            line[each.ticket] = each
        return claim

    def remove(self, ticket: Ticket) -> None:
        """Forget one, if it waits."""
        for service, line in enumerate(self._lines):
            if ticket in line:
                if next(iter(line)) == ticket:
                    self._num_passed[service] = 0
                del line[ticket]

    def serve(self, claim: WaitingClaim) -> None:
        """Take one out; those of its class and worse ones are passed by it."""
        for service in range(claim.service, len(SERVICES)):
            self._num_passed[service] += bool(self._lines[service])
        if next(iter(self._lines[claim.service])) == claim.ticket:
            self._turns[claim.service].begin(claim.turn)
        self.remove(claim.ticket)

    def next(
        self,
        fits: Callable[[tuple[ItemKey, ...]], bool],
        is_there: Callable[[tuple[ItemKey, ...]], bool],
    ) -> WaitingClaim | None:
        """Who is to be served now; None if nobody can be."""
        waiting = [service for service, line in enumerate(self._lines) if line]
        owed = [service for service in waiting if self._num_passed[service] >= self._max_overtakes]
        if not waiting:
            return None
        claims = iter(self._lines[max(owed) if owed else min(waiting)].values())
        first = next(claims)
        if fits(first.items):
            return first
        return None if owed else next((claim for claim in claims if is_there(claim.items)), None)

    def check(self) -> None:
        """Assert the invariants."""
        for line, num_passed in zip(self._lines, self._num_passed, strict=True):
            assert num_passed <= (self._max_overtakes if line else 0), "passed more often than allowed"
            turns = [claim.turn for claim in line.values()]
            assert turns == sorted(turns)
