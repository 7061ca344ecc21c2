"""The waiting and the running requests of one engine, best first, counted by group of the policy.

Those that one step runs as a whole wait in a queue of their own, since they need neither slot nor blocks.
This moves requests and decides nothing: `engine/planning/planner.py` does.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from .fair_turns import FairLines
from .plan import SequenceId
from .policies.policy import Place
from .request import ScheduledRequest


class Queues:
    """All queues are sorted by (group, priority, turn): see `Place`."""

    def __init__(self, num_groups: int) -> None:
        self.waiting: list[ScheduledRequest] = []
        self.running: list[ScheduledRequest] = []
        self.wholes: list[ScheduledRequest] = []
        """Those to be run as a whole, in flight or not."""
        self.num_running = [0] * num_groups
        self.num_wholes = [0] * num_groups
        self._turns = FairLines()
        self.ends: list[SequenceId] = []
        """Stays on the device that are over, for the next plan to say."""

    def waiting_of(self, group: int) -> list[ScheduledRequest]:
        """Those of one group that wait."""
        return _of(self.waiting, group)

    def running_of(self, group: int) -> list[ScheduledRequest]:
        """Those of one group that run."""
        return _of(self.running, group)

    def num_waiting(self, group: int) -> int:
        """How many of that group wait."""
        return bisect_left(self.waiting, group + 1, key=_group) - bisect_left(self.waiting, group, key=_group)

    def take_turn(self, place: Place) -> int:
        """The turn of a request that comes now: behind those of its caller that wait in the same line."""
        turns = (
            each.arrival
            for each in (*self.waiting, *self.wholes)
            if each.place == place and not each.is_in_flight
        )
        present = (each.line for each in (*self.waiting, *self.running, *self.wholes))
        return self._turns.take(place[:2], max(turns, default=0), present)

    def wait(self, request: ScheduledRequest) -> None:
        """Queue a request that is not on the device."""
        if request.is_whole:
            self.num_wholes[request.group] += 1
        insort(self.wholes if request.is_whole else self.waiting, request, key=_order)

    def wholes_of(self, group: int) -> list[ScheduledRequest]:
        """Those of one group that wait to be run as a whole."""
        if not self.num_wholes[group]:
            return []
        return [each for each in _of(self.wholes, group) if not each.is_in_flight]

    def take_whole(self, request: ScheduledRequest) -> None:
        """The plan being made runs it."""
        request.is_in_flight = True
        self._turns.begin(request.line, request.arrival)

    def run(self, request: ScheduledRequest) -> None:
        """Add a request that was given a sequence. It stays among the waiting until `settle`."""
        insort(self.running, request, key=_order)
        self._turns.begin(request.line, request.arrival)
        self.num_running[request.group] += 1

    def settle(self) -> None:
        """Take those that run now from the waiting ones."""
        self.waiting = [request for request in self.waiting if request.sequence_id is None]

    def last_running_of(self, group: int) -> ScheduledRequest:
        """The worst of one group that runs."""
        return self.running[bisect_left(self.running, group + 1, key=_group) - 1]

    def leave(self, request: ScheduledRequest) -> None:
        """End a running request's stay, while it still has its sequence."""
        assert request.sequence_id is not None
        del self.running[bisect_left(self.running, request.order, key=_order)]
        self.num_running[request.group] -= 1
        self.ends.append(request.sequence_id)

    def remove(self, request: ScheduledRequest) -> None:
        """Take out a request in whichever queue it is."""
        if request.is_whole:
            del self.wholes[bisect_left(self.wholes, request.order, key=_order)]
            self.num_wholes[request.group] -= 1
        elif request.sequence_id is None:
            del self.waiting[bisect_left(self.waiting, request.order, key=_order)]
        else:
            self.leave(request)

    def check(self) -> None:
        """Assert the invariants."""
        assert self.waiting == sorted(self.waiting, key=_order)
        assert self.running == sorted(self.running, key=_order)
        assert self.wholes == sorted(self.wholes, key=_order)
        assert [len(_of(self.wholes, group)) for group in range(len(self.num_running))] == self.num_wholes
        assert all(not each.blocks for each in self.wholes)
        assert all(not each.blocks and each.sequence_id is None for each in self.waiting)
        assert [len(self.running_of(group)) for group in range(len(self.num_running))] == self.num_running


def _of(queue: list[ScheduledRequest], group: int) -> list[ScheduledRequest]:
    begin = bisect_left(queue, group, key=_group)
    return queue[begin : bisect_left(queue, group + 1, begin, key=_group)]


def _order(request: ScheduledRequest) -> tuple[int, int, int]:
    return request.order


def _group(request: ScheduledRequest) -> int:
    return request.group
