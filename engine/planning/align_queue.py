"""Alignments that wait for a step of the device: by class and priority, then by caller in turn.

Each is one forward of its own beside the sequences, under a token budget of its own. Read
`engine/planning/planner.py` next.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocols.engine.messages import Align, Lane, RequestId, TokensAligned
from .encoder.slots import SlotQueue
from .events import AlignFailed
from .fair_turns import FairLines, Line, line_of
from .plan import AlignStep, Slot, StepResult
from .service_classes import SERVICES


@dataclass(slots=True, eq=False)
class Alignment:
    """One command, from its arrival to its result."""

    command: Align
    slot: Slot
    turn: int
    is_in_flight: bool = False
    is_ended: bool = False

    @property
    def line(self) -> Line:
        """Its class and priority."""
        return line_of(self.command.lane)

    @property
    def service(self) -> int:
        """Its class."""
        return self.line[0]

    @property
    def order(self) -> tuple[Line, int]:
        """What they are sorted by."""
        return self.line, self.turn

    @property
    def step(self) -> AlignStep:
        """The plan's line."""
        return AlignStep(self.command, self.slot)


class AlignQueue:
    """Live alignments by id."""

    def __init__(self, max_tokens_per_step: int) -> None:
        self._max_tokens = max_tokens_per_step
        self._live: dict[RequestId, Alignment] = {}
        self._counts = [0] * len(SERVICES)
        self._turns = FairLines()
        self._taken: list[Alignment] = []  # for the plan being made
        self._num_taken_tokens = 0

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._live

    @property
    def num_taken(self) -> int:
        """Alignments of the plan being made."""
        return len(self._taken)

    def num_of(self, service: int) -> int:
        """How many there are of one class."""
        return self._counts[service]

    def lanes(self, service: int) -> list[Lane]:
        """Of those of this class or a better one."""
        return [each.command.lane for each in self._live.values() if each.service <= service]

    def add(self, command: Align, slot: Slot) -> None:
        """Queue one."""
        live = self._live.values()
        turns = (each.turn for each in live if each.command.lane == command.lane and not each.is_in_flight)
        present = (each.line for each in live)
        turn = self._turns.take(line_of(command.lane), max(turns, default=0), present)
        alignment = self._live[command.request_id] = Alignment(command, slot, turn)
        self._counts[alignment.service] += 1

    def abort(self, request_id: RequestId) -> bool:
        """End one in any state. False if there is none."""
        alignment = self._live.pop(request_id, None)
        if alignment is None:
            return False
        self._counts[alignment.service] -= 1
        alignment.is_ended = True
        return True

    def fail_users(self, slot: Slot, error: str) -> list[AlignFailed]:
        """End those on `slot`."""
        users = [each.command.request_id for each in self._live.values() if each.slot == slot]
        for request_id in users:
            self.abort(request_id)
        return [AlignFailed(request_id, error) for request_id in users]

    def collect(self, service: int, slots: SlotQueue, most: int | None) -> None:
        """Add those of one class to the plan being made: `most` of them, however long they are, or as many
        as its tokens allow, and at least the first, if its slot can be had."""
        if not self._counts[service] or most == 0:
            return
        mine = [each for each in self._live.values() if each.service == service and not each.is_in_flight]
        for alignment in sorted(mine, key=lambda each: each.order)[:most]:
            num_tokens = len(alignment.command.token_ids)
            if self._taken and most is None and self._num_taken_tokens + num_tokens > self._max_tokens:
                break
            if slots.demand(alignment.slot):
                self._num_taken_tokens += num_tokens
                alignment.is_in_flight = True
                self._turns.begin(alignment.line, alignment.turn)
                self._taken.append(alignment)

    def take(self) -> tuple[Alignment, ...]:
        """Those of the plan being made; the next one begins with its budget whole."""
        taken = tuple(self._taken)
        self._taken.clear()
        self._num_taken_tokens = 0
        return taken

    def update(self, alignment: Alignment, result: StepResult) -> TokensAligned | AlignFailed | None:
        """Take one's result; None if it ended meanwhile."""
        if alignment.is_ended:
            return None
        request_id = alignment.command.request_id
        self.abort(request_id)
        error = result.align_errors.get(request_id)
        if error is not None:
            return AlignFailed(request_id, error)
        return TokensAligned(request_id, result.boundaries[request_id])
