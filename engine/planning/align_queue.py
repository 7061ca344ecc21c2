"""Alignments that wait for a step of the device, in order of arrival.

Each is one forward of its own beside the sequences, under a token budget of its own. Read
`engine/planning/scheduler.py` next.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocols.messages import Align, RequestId, TokensAligned
from .events import AlignFailed
from .plan import AlignStep, Slot, StepResult
from .slots import SlotQueue


@dataclass(slots=True, eq=False)
class Alignment:
    """One command, from its arrival to its result."""

    command: Align
    slot: Slot
    is_in_flight: bool = False
    is_ended: bool = False

    @property
    def step(self) -> AlignStep:
        """The plan's line."""
        return AlignStep(self.command, self.slot)


class AlignQueue:
    """Live alignments by id."""

    def __init__(self, max_tokens_per_step: int) -> None:
        self._max_tokens = max_tokens_per_step
        self._live: dict[RequestId, Alignment] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._live

    def add(self, command: Align, slot: Slot) -> None:
        """Queue one."""
        self._live[command.request_id] = Alignment(command, slot)

    def abort(self, request_id: RequestId) -> bool:
        """End one in any state. False if there is none."""
        alignment = self._live.pop(request_id, None)
        if alignment is None:
            return False
        alignment.is_ended = True
        return True

    def fail_users(self, slot: Slot, error: str) -> list[AlignFailed]:
        """End those on `slot`."""
        users = [each.command.request_id for each in self._live.values() if each.slot == slot]
        for request_id in users:
            self.abort(request_id)
        return [AlignFailed(request_id, error) for request_id in users]

    def take(self, slots: SlotQueue) -> tuple[Alignment, ...]:
        """Those to do in the plan being made; at least one if its slot can be had."""
        budget = self._max_tokens
        taken: list[Alignment] = []
        for alignment in self._live.values():
            if alignment.is_in_flight:
                continue
            num_tokens = len(alignment.command.token_ids)
            if taken and num_tokens > budget:
                break
            if slots.demand(alignment.slot):
                budget -= num_tokens
                alignment.is_in_flight = True
                taken.append(alignment)
        return tuple(taken)

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
