"""The waiting and the running requests of one engine, best first, counted by class of service.

It moves requests and decides nothing: `engine/planning/planner.py` does.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from ...protocols.engine.messages import Lane
from .fair_turns import FairLines, line_of
from .plan import SequenceId
from .request import Request
from .service_classes import SERVICES


class Queues:
    """Both queues are sorted by (class, priority, turn)."""

    def __init__(self) -> None:
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.num_running = [0] * len(SERVICES)
        self._turns = FairLines()
        self.ends: list[SequenceId] = []
        """Stays on the device that are over, for the next plan to say."""

    def waiting_of(self, service: int) -> list[Request]:
        """Those of one class that wait."""
        return _of(self.waiting, service)

    def running_of(self, service: int) -> list[Request]:
        """Those of one class that run."""
        return _of(self.running, service)

    def num_waiting(self, service: int) -> int:
        """How many of that class wait."""
        return bisect_left(self.waiting, service + 1, key=_service) - bisect_left(
            self.waiting, service, key=_service
        )

    def take_turn(self, lane: Lane) -> int:
        """The turn of a request that comes now: behind those of its caller that wait in the same line."""
        turns = (each.arrival for each in self.waiting if each.generate.lane == lane)
        present = (each.line for each in (*self.waiting, *self.running))
        return self._turns.take(line_of(lane), max(turns, default=0), present)

    def wait(self, request: Request) -> None:
        """Queue a request that is not on the device."""
        insort(self.waiting, request, key=_order)

    def run(self, request: Request) -> None:
        """Add a request that was given a sequence. It stays among the waiting until `settle`."""
        insort(self.running, request, key=_order)
        self._turns.begin(request.line, request.arrival)
        self.num_running[request.service] += 1

    def settle(self) -> None:
        """Take those that run now from the waiting ones."""
        self.waiting = [request for request in self.waiting if request.sequence_id is None]

    def leave(self, request: Request) -> None:
        """End a running request's stay, while it still has its sequence."""
        assert request.sequence_id is not None
        del self.running[bisect_left(self.running, request.order, key=_order)]
        self.num_running[request.service] -= 1
        self.ends.append(request.sequence_id)

    def remove(self, request: Request) -> None:
        """Take out a request in whichever queue it is."""
        if request.sequence_id is None:
            del self.waiting[bisect_left(self.waiting, request.order, key=_order)]
        else:
            self.leave(request)

    def check(self) -> None:
        """Assert the invariants."""
        assert self.waiting == sorted(self.waiting, key=_order)
        assert self.running == sorted(self.running, key=_order)
        assert all(not each.blocks and each.sequence_id is None for each in self.waiting)
        assert [len(self.running_of(service)) for service in range(len(SERVICES))] == self.num_running


def _of(queue: list[Request], service: int) -> list[Request]:
    begin = bisect_left(queue, service, key=_service)
    return queue[begin : bisect_left(queue, service + 1, begin, key=_service)]


def _order(request: Request) -> tuple[int, int, int]:
    return request.order


def _service(request: Request) -> int:
    return request.service
