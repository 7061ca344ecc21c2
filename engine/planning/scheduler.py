"""Continuous batching: requests in, plans for the device out, results back in.

It need not know a step's tokens to plan the next one. Pure and deterministic: no tensors, no tasks, no clock;
the same calls give the same plans. Read `engine/planning/planner.py` for what goes into a step,
`engine/planning/request.py` for one request's state, `engine/planning/kv/space.py` for blocks and
`actors/inference/scheduler.py` for who calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ...protocols.engine.messages import (
    AnyRequest,
    Features,
    FinishReason,
    InputChunk,
    Outcome,
    RequestId,
    SessionKey,
    TokensSampled,
    TransduceRequest,
)
from ...protocols.engine.statistics import EngineStatistics
from ...protocols.errors import BadRequestError, InternalError, OverloadedError
from .activity import Presence
from .encoder.slots import SlotQueue
from .events import EncodeDropped, EncodeFailed, SchedulerEvent, WindowEncoded
from .kv.grouped_space import make_space
from .limits import SchedulerConfig, SchedulingPolicy, is_transduce
from .plan import EncodeStep, Plan, SequenceId, SequenceOutcome, SequenceStep, Slot, StepResult
from .planner import Planner
from .policies.first_come import FirstCome
from .policies.policy import Policy
from .policies.service_classes import ServiceClasses
from .queues import Queues
from .request import ScheduledRequest
from .service_classes import SERVICES
from .streaming_planner import StreamingPlanner
from .streaming_request import StreamingRequest
from .waits import WAITS

_POLICIES: Final[dict[SchedulingPolicy, Callable[[SchedulerConfig], Policy[Any]]]] = {
    "service-classes": ServiceClasses,
    "first-come": FirstCome,
}
"""Each has a state of its own type, which only it reads."""
_FOR_OTHERS: Final = 8
"""Of so many places to wait one is for whoever has none."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A plan in flight. A request whose sequence is another one by now ignores its result."""

    requests: tuple[ScheduledRequest, ...]
    plan: Plan
    wholes: tuple[ScheduledRequest, ...]
    streaming: tuple[StreamingRequest, ...] = ()


class Scheduler:
    """The waiting and running queues.

    Any number of plans may be in flight as long as the runner executes them in order. Blocks freed while a
    step that writes them is in flight may be handed out at once, because their next tenant's step runs
    after it. Results for sequences that are over meanwhile are ignored.
    """

    def __init__(self, config: SchedulerConfig, presence: Presence | None = None) -> None:
        """`presence` is that of all engines of the process; its own if there is no other."""
        self.config = config
        self._kv = make_space(config)
        # A state has no rows to take back: behind a draft in flight it is not known which one is right.
        self._drafts_ahead = config.corrects_starts and self._kv.states is None
        self._requests: dict[RequestId, ScheduledRequest] = {}
        self._policy = _POLICIES[config.scheduling_policy](config)
        self._queues = Queues(len(self._policy.groups))
        self._slots = SlotQueue(
            max_encodes_per_step=config.max_encodes_per_step,
            max_tokens_per_step=config.max_encoder_tokens_per_step,
            frames_per_row=config.frames_per_row,
        )
        self._flights: dict[int, _Flight] = {}
        self._overlapped: Plan | None = None  # taken with a step, for `schedule_overlapped` to give
        self._step = 0
        self._counts: Counter[str] = Counter()
        self._streaming: StreamingPlanner | None = None
        if config.input_frames_per_row:
            assert self._kv.states is not None, "see `SchedulerConfig`"
            num_groups = len(self._policy.groups)
            self._streaming = StreamingPlanner(config, num_groups, self._kv.states, self._counts)
        self._planner = Planner(
            config,
            self._policy,
            self._queues,
            self._kv,
            self._slots,
            self._counts,
            presence,
            self._streaming,
        )
        self._busy_s = 0.0

    @property
    def num_in_flight(self) -> int:
        """Plans whose results are outstanding, but for those of encodes apart."""
        return sum(not flight.plan.is_overlapped for flight in self._flights.values())

    @property
    def stands_back(self) -> bool:
        """Whether another engine of the process serves live requests, and this one none: see
        `engine/planning/activity.py`."""
        return self._planner.stands_back

    def submit(
        self,
        message: AnyRequest,
        slot: Slot | None = None,
        media_slots: tuple[Slot, ...] = (),
        *,
        is_admitted: bool = False,
    ) -> list[SchedulerEvent]:
        """Queue a request that cross-attends to `slot` and has `media_slots` behind its media spans.

        If its session has a live request, that ends now: its event ("abort") is what is returned. Raises
        BadRequestError if it can never run, OverloadedError if too many wait (unless it goes on with what is
        admitted), and InternalError if a slot holds nothing (its encode failed).
        """
        self.config.check(message)
        if self._streaming is not None and is_transduce(message):
            return self._submit_streaming(self._streaming, message, is_admitted=is_admitted)
        if (slot is None) != (message.encoder_hash is None) or len(media_slots) != len(message.media):
            raise InternalError("a request's encoder slots are not those of its items")
        previous = self._kv.sessions.live(message.session)
        replaced = previous if previous is not None and previous.sequence_id is None else None
        place = self._policy.place(message.lane)
        slots = media_slots if slot is None else (slot, *media_slots)
        self._check_new(message.request_id, slots)
        if not is_admitted:
            self._check_room(place.group, message.lane.caller, replaced)
        events: list[SchedulerEvent] = []
        if previous is not None:
            events.append(self._finish(previous, TokensSampled(previous.request_id), "abort"))
        if replaced is not None and replaced.place == place:
            arrival = replaced.arrival  # revised while waiting: keeps its place
        else:
            arrival = self._queues.take_turn(place)
        request = ScheduledRequest(
            message,
            slot,
            media_slots,
            place,
            arrival,
            self.config.block_size,
            fingerprint=self.config.fingerprint,
            positions=self.config.positions(message.media),
            draft_model=self.config.draft_model,
            drafts_ahead=self._drafts_ahead,
            is_admitted=is_admitted,
            is_whole=self.config.is_whole(message),
            by_whole_prompt=self.config.sees_whole_prompts,
        )
        self._requests[request.request_id] = request
        self._kv.sessions.begin(request)
        self._queues.wait(request)
        return events

    def feed(self, request_id: RequestId, chunk: InputChunk) -> None:
        """The next input of a request whose task is `Transduce`.

        Raises BadRequestError if there is no such request, its input has ended or the chunk could never be
        run, and OverloadedError if too many of its chunks wait to be run.
        """
        self._with_input().feed(request_id, chunk)

    def fork(self, request_id: RequestId, message: TransduceRequest) -> list[SchedulerEvent]:
        """Queue a request that goes on behind what `request_id` was fed so far, with input of its own.

        If the states that it begins with are gone, `StateEvicted` says so, now or later. Raises
        BadRequestError if `request_id` cannot be fed any more, or `message` has another look-ahead or
        condition.
        """
        streaming = self._with_input()
        self.config.check(message)
        self._check_new(message.request_id, ())
        streaming.check_fork(request_id, message)
        streaming.fork(request_id, message, self._policy.place(message.lane))
        return self.take_events()

    def take_events(self) -> list[SchedulerEvent]:
        """What happened besides: evictions that a plan or an abort made. To be called after these; `submit`,
        `fork` and `update` return them too."""
        return [] if self._streaming is None else [*self._streaming.take_events()]

    def encode(self, slot: Slot, features: Features) -> None:
        """Queue an encode into a new slot; it is planned when something that is queued needs it."""
        self._slots.encode(slot, features)

    def drop_encode(self, slot: Slot) -> list[SchedulerEvent]:
        """Forget an encode nobody wants any more, unless it is already planned."""
        if not self._slots.drop(slot):
            return []
        return [*self._fail_users(slot, "the encode was cancelled"), EncodeDropped(slot)]

    def free(self, slot: Slot) -> list[SchedulerEvent]:
        """Let go of a slot's content. Requests that still use it (a caller's mistake) end with an error."""
        self._slots.free(slot)
        return self._fail_users(slot, "the encoder output was released while it was in use")

    def abort(self, request_id: RequestId) -> bool:
        """End a request in any state; its blocks are free at once, or its session's.

        False if there is none.
        """
        request = self._requests.get(request_id)
        if request is None:
            return self._streaming is not None and self._streaming.abort(request_id)
        self._end(request, parks=True)
        return True

    def close_session(self, key: SessionKey) -> None:
        """Free what the session parked. A live request of it goes on and parks nothing."""
        self._kv.close(key)

    def schedule(self) -> Plan:
        """The next step. A falsy plan (nothing to do) is not in flight and expects no result.

        What is to be encoded apart beside it comes from `schedule_overlapped`: call that next.
        """
        making = self._planner.plan()
        frees, encodes = self._slots.take_frees(), self._slots.take_encodes()
        if self._slots.is_overlapped:
            self._take_overlapped(encodes)
            encodes = ()
        plan = Plan(
            step=self._step,
            ends=tuple(self._queues.ends),
            frees=frees,
            copies=() if self._kv.states is None else self._kv.states.take_copies(),
            encodes=encodes,
            sequences=tuple(making.sequences),
            transduces=tuple(making.chunks.steps) if making.chunks else (),
            wholes=tuple(each.whole_step for each in making.wholes),
            transfers=self._kv.transfers.take_new() if self._kv.transfers.open else (),
            awaits_transfers=bool(self._kv.transfers.open),
            is_quiet=self._planner.is_quiet,
        )
        if plan:
            self._queues.ends.clear()
            streaming = tuple(making.chunks.requests) if making.chunks else ()
            self._take_off(_Flight(tuple(making.requests), plan, tuple(making.wholes), streaming))
        return plan

    def schedule_overlapped(self) -> Plan | None:
        """What is to be encoded beside the steps now, if anything: it is in flight."""
        self._planner.plan_encode()
        self._take_overlapped(self._slots.take_encodes())
        plan, self._overlapped = self._overlapped, None
        return plan

    def update(self, result: StepResult) -> list[SchedulerEvent]:
        """Take a step's result; what happened, in the order of its plan."""
        flight = self._flights.pop(result.step)
        self._counts["steps"] += not flight.plan.is_overlapped
        self._busy_s += result.busy_s
        if result.transfers_finished or result.transfers_failed:
            self._kv.transfers.end(result)
        events: list[SchedulerEvent] = []
        for slot in (encode.slot for encode in flight.plan.encodes):
            error = result.encode_errors.get(slot)
            if error is None:
                self._slots.encoded(slot)
                self._counts["windows_encoded"] += 1
                events.append(WindowEncoded(slot, result.encoder_bytes.get(slot, 0)))
            else:
                self._slots.fail(slot, error)
                events += self._fail_users(slot, error)
                events.append(EncodeFailed(slot, error))
        for request, step, outcome in zip(
            flight.requests, flight.plan.sequences, result.outcomes, strict=True
        ):
            if request.sequence_id == step.sequence_id:
                event = self._take(request, step, outcome, result)
                if event is not None:
                    events.append(event)
        if self._streaming is not None:
            events += self._update_streaming(self._streaming, flight, result)
        for request in flight.wholes:
            if self._requests.get(request.request_id) is request:
                self._end(request, parks=False)
                events.append(result.wholes[request.request_id])
        return events

    def statistics(self) -> EngineStatistics:
        """Counters and gauges; those of the encoder cache are zero here."""
        kv = self._kv
        numbers: dict[str, Any] = {**kv.counters()}
        waiting = Counter(each.message.lane.service for each in self._waiting())
        running = Counter(each.message.lane.service for each in self._queues.running)
        if self._streaming is not None:
            requests = self._streaming.requests
            running += Counter(each.message.lane.service for each in requests if each.slot is not None)
            numbers["num_state_slots"] = self._streaming.num_slots_held
        for service in SERVICES:
            numbers[f"num_waiting_{service}"] = waiting[service]
            numbers[f"num_running_{service}"] = running[service]
        waits = Counter(each.waits_for for each in self._all())
        numbers |= {f"num_waits_{name}": waits[name] for name in WAITS}
        numbers |= {f"num_{name}": count for name, count in self._counts.items()}
        return EngineStatistics(
            num_free_blocks=kv.pool.num_free,
            num_total_blocks=kv.pool.num_total,
            num_encoder_tokens=self._slots.num_tokens,
            num_cached_blocks=kv.pool.num_kept,
            num_sessions_parked=len(kv.sessions),
            busy_s=self._busy_s,
            **numbers,
        )

    def check(self) -> None:
        """Assert the invariants of the queues and the blocks."""
        queues = self._queues
        self._kv.check(queues.running)
        if self._streaming is not None:
            self._streaming.check()
        queues.check()
        assert {*queues.waiting, *queues.running, *queues.wholes} == set(self._requests.values())
        for request in queues.running:
            assert request.num_computed <= request.num_planned <= request.capacity
            assert len(request.blocks) <= self._kv.pool.num_blocks_for(request.max_length - 1)
        ends: dict[SequenceId, int] = {}  # up to where steps in flight write, by what is known of drafts
        for flight in self._flights.values():
            for request, step in zip(flight.requests, flight.plan.sequences, strict=True):
                if request.sequence_id == step.sequence_id:
                    before = ends.get(step.sequence_id, request.num_computed)
                    ends[step.sequence_id] = before + step.num_rows
                    self._kv.check_step(step, request, before + step.num_rows)
                else:
                    self._kv.check_step(step, None, 0)

    def _take_overlapped(self, encodes: tuple[EncodeStep, ...]) -> None:
        if encodes:
            self._overlapped = Plan(self._step, encodes=encodes, is_overlapped=True)
            self._take_off(_Flight((), self._overlapped, ()))

    def _take_off(self, flight: _Flight) -> None:
        self._flights[flight.plan.step] = flight
        self._step += 1

    def _check_new(self, request_id: RequestId, slots: tuple[Slot, ...]) -> None:
        if request_id in self._requests or (self._streaming is not None and request_id in self._streaming):
            raise BadRequestError(f"request id {request_id!r} is in use")
        for slot in slots:
            problem = self._slots.problem(slot)
            if problem is not None:
                raise InternalError(problem)

    def _check_room(self, group: int, caller: str, replaced: ScheduledRequest | None) -> None:
        """Raise OverloadedError if too many wait, or so many of one caller's that the rest is for others.

        Worse groups fill no queue but their own.
        """
        most = self.config.max_waiting
        share = most - most // _FOR_OTHERS
        if sum(map(self._num_waiting, range(group + 1))) < share:
            return
        before = [
            each.message.lane.caller
            for each in self._waiting()
            if each.group <= group and not each.is_admitted and each is not replaced
        ]
        if len(before) >= most:
            raise OverloadedError(f"{most} requests are waiting for the engine")
        if caller and before.count(caller) >= share:
            raise OverloadedError(f"{share} of your requests are waiting for the engine, of {most} it takes")

    def _num_waiting(self, group: int) -> int:
        num_waiting = self._queues.num_waiting(group) + self._queues.num_wholes[group]
        if self._streaming is not None:
            num_waiting += sum(each.group == group for each in self._streaming.waiting)
        return num_waiting

    def _waiting(self) -> Iterator[ScheduledRequest | StreamingRequest]:
        yield from self._queues.waiting
        yield from self._queues.wholes
        if self._streaming is not None:
            yield from self._streaming.waiting

    def _all(self) -> Iterator[ScheduledRequest | StreamingRequest]:
        yield from self._requests.values()
        if self._streaming is not None:
            yield from self._streaming.requests

    def _with_input(self) -> StreamingPlanner:
        if self._streaming is None:
            raise BadRequestError("this model takes whole inputs: its requests cannot be fed while they run")
        return self._streaming

    def _submit_streaming(
        self, streaming: StreamingPlanner, message: TransduceRequest, *, is_admitted: bool
    ) -> list[SchedulerEvent]:
        place = self._policy.place(message.lane)
        self._check_new(message.request_id, ())
        if not is_admitted:
            self._check_room(place.group, message.lane.caller, None)
        streaming.submit(message, place, is_admitted=is_admitted)
        return self.take_events()

    def _update_streaming(
        self, streaming: StreamingPlanner, flight: _Flight, result: StepResult
    ) -> Iterator[SchedulerEvent]:
        steps = zip(flight.streaming, flight.plan.transduces, result.transduced, strict=True)
        for request, step, outcome in steps:
            event = streaming.update(request, step, outcome)
            if event is not None:
                yield event
        yield from self.take_events()

    def _take(
        self, request: ScheduledRequest, step: SequenceStep, outcome: SequenceOutcome, result: StepResult
    ) -> TokensSampled | Outcome | None:
        """Take what a step did to a request that is still the same."""
        sampled = outcome if isinstance(outcome, TokensSampled) else None
        if sampled is not None and sampled.error is not None:
            return self._finish(request, sampled, "error")
        request.take(step, outcome)
        if step.num_draft:
            self._kv.settle_draft(request)
        if request.num_computed >= request.next_full:
            self._kv.register(request)
        if not step.answers:
            return None
        if sampled is None:
            return self._finish(request, outcome, "stop")
        if request.proposers or step.num_draft:
            self._counts["draft_accepted"] += sampled.num_draft_accepted
            drafted = result.proposals.get(step.sequence_id)
            request.tell_proposers(step, sampled.num_draft_accepted, drafted)
        if sampled.finish_reason is not None:
            return self._finish(request, sampled, sampled.finish_reason)
        if not sampled.token_ids:
            raise RuntimeError(f"the runner answered nothing for {request.request_id!r}")
        return request.report(sampled, None)

    def _finish(
        self, request: ScheduledRequest, outcome: SequenceOutcome, reason: FinishReason
    ) -> TokensSampled | Outcome:
        """End a request; its last event."""
        event = request.report(outcome, reason)
        self._end(request, parks=reason != "error")
        return event

    def _fail_users(self, slot: Slot, error: str) -> list[SchedulerEvent]:
        """End everything that uses `slot`."""
        requests = [each for each in self._requests.values() if each.uses(slot)]
        return [
            self._finish(each, TokensSampled(each.request_id, error=error, fault="not_encoded"), "error")
            for each in requests
        ]

    def _end(self, request: ScheduledRequest, *, parks: bool) -> None:
        del self._requests[request.request_id]
        self._queues.remove(request)
        self._kv.end(request, parks=parks)
