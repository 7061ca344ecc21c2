"""Drives a scheduler and a runner without actors, and keeps what every request was given."""

from __future__ import annotations

from collections import deque
from typing import Protocol, assert_never

from sensorium.engine.planning.events import (
    EncodeDropped,
    EncodeFailed,
    SchedulerEvent,
    WindowEncoded,
)
from sensorium.engine.planning.plan import Plan, Slot, StepResult
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import (
    AnyRequest,
    Outcome,
    Pooled,
    Prefilled,
    RequestId,
    StateEvicted,
    TaskFailed,
    TokensAligned,
    TokensSampled,
    Transduced,
)


class PlanRunner(Protocol):
    """What executes plans."""

    def execute(self, plan: Plan) -> StepResult:
        """Do everything in `plan`."""


class StepLoop:
    """Plans wait in order as they would for the device; `finish` executes the oldest.

    Plans of encodes that go apart wait for `finish_overlapped`.
    """

    def __init__(self, scheduler: Scheduler, runner: PlanRunner) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.in_flight: deque[Plan] = deque()
        self.overlapped: deque[Plan] = deque()
        self.plans: list[Plan] = []
        self.overlapped_plans: list[Plan] = []
        self.tokens: dict[RequestId, list[int]] = {}
        self.ends: dict[RequestId, TokensSampled] = {}
        self.first: dict[RequestId, TokensSampled] = {}
        self.probabilities: dict[RequestId, float] = {}
        self.outcomes: dict[RequestId, Outcome] = {}
        self.transduced: dict[RequestId, list[Transduced]] = {}
        """Of each fed request what it was given since its input last began."""
        self.evicted: list[RequestId] = []
        """Those to be fed again; the caller takes them out."""
        self.encode_events: list[WindowEncoded | EncodeFailed | EncodeDropped] = []

    @property
    def steps(self) -> list[Plan]:
        """The plans that fed something."""
        return [plan for plan in self.plans if plan.sequences or plan.transduces]

    def submit(
        self, request: AnyRequest, slot: Slot | None = None, media_slots: tuple[Slot, ...] = ()
    ) -> None:
        """Submit, and take what that says of the request it revises."""
        self.take(self.scheduler.submit(request, slot, media_slots))

    def plan(self) -> Plan:
        """Schedule one step; it is in flight if there is anything to do."""
        plan = self.scheduler.schedule()
        self.take(self.scheduler.take_events())
        self.plan_overlapped()
        if plan:
            self.in_flight.append(plan)
            self.plans.append(plan)
        return plan

    def plan_overlapped(self) -> None:
        """Have something encoded beside what is in flight."""
        overlapped = self.scheduler.schedule_overlapped()
        if overlapped is not None:
            self.overlapped.append(overlapped)
            self.overlapped_plans.append(overlapped)

    def finish(self) -> None:
        """Execute the oldest plan and give the scheduler its result."""
        self.take(self.scheduler.update(self.runner.execute(self.in_flight.popleft())))

    def step(self) -> None:
        """Plan one, and execute the oldest."""
        self.plan()
        self.finish()

    def finish_overlapped(self) -> None:
        """Do the encodes that went apart first, and tell the scheduler."""
        self.take(self.scheduler.update(self.runner.execute(self.overlapped.popleft())))

    def take(self, events: list[SchedulerEvent]) -> None:
        """Keep what events say; each request must end once and be silent afterwards."""
        for event in events:
            match event:
                case TokensSampled(request_id=request_id):
                    assert request_id not in self.ends, f"{request_id} was given something after its end"
                    self.tokens.setdefault(request_id, []).extend(event.token_ids)
                    if request_id not in self.first:
                        self.first[request_id] = event
                    else:
                        once = (event.num_cached, event.prompt_logprobs, event.probe_probability)
                        assert once == (0, None, None), "with the first tokens only"
                    if event.finish_reason is not None:
                        self.ends[request_id] = event
                    if event.probe_probability is not None:
                        self.probabilities[request_id] = event.probe_probability
                case TokensAligned() | Prefilled() | Pooled() | TaskFailed():
                    assert event.request_id not in self.outcomes
                    self.outcomes[event.request_id] = event
                case Transduced(request_id=request_id):
                    assert request_id not in self.outcomes
                    given = self.transduced.setdefault(request_id, [])
                    assert not (given and given[-1].finish_reason), "something after its end"
                    given.append(event)
                case StateEvicted(request_id=request_id):
                    self.transduced[request_id] = []
                    self.evicted.append(request_id)
                case WindowEncoded() | EncodeFailed() | EncodeDropped():
                    self.encode_events.append(event)
                case _:
                    assert_never(event)

    def run(self, max_steps: int = 10_000, *, max_in_flight: int = 1) -> None:
        """Step until there is nothing to do, with so many plans in flight."""
        for _ in range(max_steps):
            while len(self.in_flight) >= max_in_flight:
                self.finish()
            self.scheduler.check()
            if not self.plan():
                if self.in_flight:
                    self.finish()
                elif self.overlapped:
                    self.finish_overlapped()
                else:
                    return
        raise AssertionError(f"not idle after {max_steps} steps")
