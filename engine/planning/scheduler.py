"""Continuous batching: what goes into the next step of the device.

Each step gives every decoding request its next token, then prompts their next chunks within a token budget,
admits waiting requests while blocks last, and preempts by recomputation when they do not. It need not know
a step's tokens to plan the next one. Pure and deterministic: no tensors, no tasks, no clock; the same calls
give the same plans. Read `engine/planning/request.py` for one request's state,
`engine/planning/kv_space.py` for blocks and `actors/engine/scheduler.py` for who calls.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field

from ...protocols.errors import BadRequestError, InternalError, OverloadedError
from ...protocols.messages import (
    Align,
    EngineStatistics,
    Features,
    FinishReason,
    Generate,
    RequestId,
    SessionKey,
    TokensSampled,
)
from .align_queue import Alignment, AlignQueue
from .events import EncodeDropped, EncodeFailed, SchedulerEvent, WindowEncoded
from .kv_space import KvSpace
from .limits import SchedulerConfig
from .plan import Plan, Sampled, SequenceId, SequenceStart, SequenceStep, Slot, StepResult
from .request import Request
from .slots import SlotQueue


@dataclass(frozen=True, slots=True)
class _Flight:
    """A plan in flight. A request whose sequence is another one by now ignores its result."""

    requests: tuple[Request, ...]
    plan: Plan
    aligns: tuple[Alignment, ...]


@dataclass(slots=True)
class _Making:
    """The plan being made."""

    budget: int
    """Tokens left."""
    requests: list[Request] = field(default_factory=list)
    sequences: list[SequenceStep] = field(default_factory=list)
    reserve: int = 0  # of them that no draft may take
    is_short: bool = False
    """Whether a running request lacks blocks, or was preempted: then nobody is admitted."""


class Scheduler:
    """The waiting and running queues.

    Any number of plans may be in flight as long as the runner executes them in order. Blocks freed while a
    step that writes them is in flight may be handed out at once, because their next tenant's step runs
    after it. Results for sequences that are over meanwhile are ignored.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self._kv = KvSpace(config)
        self._requests: dict[RequestId, Request] = {}
        self._waiting: list[Request] = []  # both sorted by (priority, arrival): best first
        self._running: list[Request] = []
        self._aligns = AlignQueue(config.max_tokens_per_step)
        self._slots = SlotQueue(
            max_encodes_per_step=config.max_encodes_per_step,
            max_tokens_per_step=config.max_encoder_tokens_per_step,
        )
        self._flights: dict[int, _Flight] = {}
        self._ends: list[SequenceId] = []
        self._num_submitted = 0
        self._num_sequences = 0
        self._step = 0
        self._counts: Counter[str] = Counter()
        self._busy_s = 0.0

    @property
    def num_in_flight(self) -> int:
        """Plans whose results are outstanding."""
        return len(self._flights)

    def submit(
        self, generate: Generate, slot: Slot | None, media_slots: tuple[Slot, ...] = ()
    ) -> list[SchedulerEvent]:
        """Queue a request that cross-attends to `slot` and has `media_slots` behind its media spans.

        If its session has a live request, that ends now: its event ("abort") is what is returned. Raises
        BadRequestError if it can never run, OverloadedError if too many wait, and InternalError if a slot
        holds nothing (its encode failed).
        """
        self.config.check_generate(generate)
        if (slot is None) != (generate.encoder_hash is None) or len(media_slots) != len(generate.media):
            raise InternalError("a request's encoder slots are not those of its items")
        previous = self._kv.sessions.live(generate.session)
        is_replacing = previous is not None and previous.sequence_id is None
        self._check_new(
            generate.request_id, media_slots if slot is None else (slot, *media_slots), is_replacing
        )
        arrival = self._num_submitted
        self._num_submitted += 1
        events: list[SchedulerEvent] = []
        if previous is not None:
            arrival = previous.arrival if is_replacing else arrival  # revised while waiting: keeps its place
            events.append(self._finish(previous, Sampled(SequenceId(-1)), "abort"))
        request = Request(generate, slot, media_slots, arrival, self.config.block_size)
        self._requests[request.request_id] = request
        self._kv.sessions.begin(request)
        insort(self._waiting, request, key=_order)
        return events

    def align(self, command: Align, slot: Slot) -> None:
        """Queue an alignment. Raises as `submit` does."""
        self.config.check_align(command)
        self._check_new(command.request_id, (slot,))
        self._aligns.add(command, slot)

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
        """End a request or alignment in any state; its blocks are free at once, or its session's.

        False if there is none.
        """
        request = self._requests.get(request_id)
        if request is not None:
            self._end(request, parks=True)
            return True
        return self._aligns.abort(request_id)

    def close_session(self, key: SessionKey) -> None:
        """Free what the session parked. A live request of it goes on and parks nothing."""
        self._kv.close(key)

    def schedule(self) -> Plan:
        """The next step. A falsy plan (nothing to do) is not in flight and expects no result."""
        making = _Making(self.config.max_tokens_per_step)
        prompts = self._plan_decodes(making)
        self._plan_prompts(making, prompts)
        if not making.is_short:
            self._admit(making)
        aligns = self._aligns.take(self._slots)
        frees, encodes = self._slots.take()
        plan = Plan(
            step=self._step,
            ends=tuple(self._ends),
            frees=frees,
            encodes=encodes,
            sequences=tuple(making.sequences),
            aligns=tuple(each.step for each in aligns),
        )
        if plan:
            self._ends.clear()
            self._flights[plan.step] = _Flight(tuple(making.requests), plan, aligns)
            self._step += 1
        return plan

    def update(self, result: StepResult) -> list[SchedulerEvent]:
        """Take a step's result; what happened, in the order of its plan."""
        flight = self._flights.pop(result.step)
        self._counts["steps"] += 1
        self._busy_s += result.busy_s
        events: list[SchedulerEvent] = []
        for slot in (encode.slot for encode in flight.plan.encodes):
            error = result.encode_errors.get(slot)
            if error is None:
                self._counts["windows_encoded"] += 1
                events.append(WindowEncoded(slot, result.encoder_bytes.get(slot, 0)))
            else:
                self._slots.fail(slot, error)
                events += self._fail_users(slot, error)
                events.append(EncodeFailed(slot, error))
        sampled = {each.sequence_id: each for each in result.sampled}
        for request, step in zip(flight.requests, flight.plan.sequences, strict=True):
            if request.sequence_id == step.sequence_id:
                event = self._take(request, step, sampled.get(step.sequence_id))
                if event is not None:
                    events.append(event)
        for alignment in flight.aligns:
            aligned = self._aligns.update(alignment, result)
            if aligned is not None:
                events.append(aligned)
        return events

    def statistics(self) -> EngineStatistics:
        """Counters and gauges; those of the encoder cache are zero here."""
        kv = self._kv
        return EngineStatistics(
            num_waiting=len(self._waiting) + len(self._aligns),
            num_running=len(self._running),
            num_free_blocks=kv.pool.num_free,
            num_total_blocks=kv.pool.num_total,
            num_encoder_tokens=self._slots.num_tokens,
            num_cached_blocks=kv.pool.num_kept,
            num_sessions_parked=len(kv.sessions),
            busy_s=self._busy_s,
            **kv.counters(),
            **{f"num_{name}": count for name, count in self._counts.items()},
        )

    def check(self) -> None:
        """Assert the invariants of the queues and the blocks."""
        self._kv.check(self._running)
        assert self._waiting == sorted(self._waiting, key=_order)
        assert self._running == sorted(self._running, key=_order)
        assert {*self._waiting, *self._running} == set(self._requests.values())
        assert all(not each.blocks and each.sequence_id is None for each in self._waiting)
        for request in self._running:
            assert request.num_computed <= request.num_planned <= request.capacity
            assert len(request.blocks) <= self._kv.pool.num_blocks_for(request.max_length - 1)
        size = self.config.block_size
        for flight in self._flights.values():
            for step in flight.plan.sequences:
                written = step.block_table[step.start // size : -(-(step.start + step.num_rows) // size)]
                assert written, "a step without rows"
                assert not any(map(self._kv.pool.is_findable, written)), "a findable block is written to"

    def _check_new(self, request_id: RequestId, slots: tuple[Slot, ...], is_replacing: bool = False) -> None:
        if request_id in self._requests or request_id in self._aligns:
            raise BadRequestError(f"request id {request_id!r} is in use")
        if len(self._waiting) + len(self._aligns) - is_replacing >= self.config.max_waiting:
            raise OverloadedError(f"{self.config.max_waiting} requests are waiting for the engine")
        for slot in slots:
            problem = self._slots.problem(slot)
            if problem is not None:
                raise InternalError(problem)

    def _plan_decodes(self, making: _Making) -> list[Request]:
        """Give those past their prompt the next token, best first. Returns the others that run."""
        prompts: list[Request] = []
        for index, request in enumerate(self._running):  # only ever loses worse ones while we are here
            making.reserve = len(self._running) - index - 1 + (making.budget // 2 if self._waiting else 0)
            if request.num_planned < request.num_begun:
                prompts.append(request)
                continue
            waits_for_result = request.drafters and request.num_sampling
            if not request.num_left or waits_for_result or not making.budget:
                continue
            if request.num_planned == request.capacity and not self._make_room(request, making):
                continue  # it keeps its blocks: better requests take them if they must
            self._feed(making, request, 1)
        making.reserve = 0
        self._counts["decode_tokens"] += len(making.sequences)
        return prompts

    def _plan_prompts(self, making: _Making, prompts: list[Request]) -> None:
        """Feed chunks of the prompts of running requests, best first; they have blocks for them."""
        for index, request in enumerate(prompts):
            is_contended = bool(self._waiting) or index + 1 < len(prompts)
            wish = min(request.num_missing, self._chunk(making.budget, is_contended))
            num_tokens = self._encoded_part(request, request.num_planned, wish)
            if num_tokens:
                self._feed(making, request, num_tokens)

    def _admit(self, making: _Making) -> None:
        """Let waiting requests run, best first; none overtakes one that lacks blocks."""
        num_before = len(self._running)
        for index, request in enumerate(self._waiting):
            if not making.budget or len(self._running) >= self.config.max_running:
                break
            if self._kv.is_awaiting(request):
                continue
            found = self._kv.find(request)
            if self._kv.is_awaiting(request, found):
                continue
            if not self._kv.fits(request, found):
                break
            is_contended = index + 1 < len(self._waiting)
            wish = min(request.num_missing - found.num_tokens, self._chunk(making.budget, is_contended))
            num_tokens = self._encoded_part(request, found.num_tokens, wish)
            if not num_tokens:
                continue
            self._kv.enter(request, found, SequenceId(self._num_sequences))
            self._num_sequences += 1
            insort(self._running, request, key=_order)
            self._feed(making, request, num_tokens, begin=request.start())
        if len(self._running) > num_before:
            self._waiting = [request for request in self._waiting if request.sequence_id is None]

    def _chunk(self, budget: int, is_contended: bool) -> int:
        """How much of a prompt may be fed at once."""
        limit = self.config.max_prefill_chunk
        if limit is not None:
            return min(budget, limit)
        return max(budget // 2, min(budget, self.config.block_size)) if is_contended else budget

    def _encoded_part(self, request: Request, start: int, num_tokens: int) -> int:
        """How many of the tokens from `start` can be fed now: as far as their items are encoded by then."""
        if request.slot is not None and not self._slots.demand(request.slot):
            return 0
        for item in request.items[request.next_item :]:
            if item.start >= start + num_tokens:
                break
            if item.end > start and not self._slots.demand(item.slot, item.end - item.start):
                return max(item.start - start, 0)
        return num_tokens

    def _feed(
        self, making: _Making, request: Request, num_known: int, begin: SequenceStart | None = None
    ) -> None:
        """Plan one request's next tokens. It has blocks for the known ones; the draft gets what is free."""
        draft: tuple[int, ...] = ()
        if request.drafters and num_known == request.num_missing:
            end = request.num_planned + num_known
            room = request.capacity + self._kv.pool.num_free * self.config.block_size - end
            draft = request.draft(min(making.budget - num_known - making.reserve, room))
            self._kv.grow(request, end + len(draft))
            self._counts["draft_tokens"] += len(draft)
        if request.num_planned < request.num_begun:
            self._counts["prefill_tokens"] += num_known
        making.budget -= num_known + len(draft)
        making.requests.append(request)
        making.sequences.append(request.step(num_known, draft, begin))

    def _make_room(self, request: Request, making: _Making) -> bool:
        """Get a block for the next position, preempting worse requests (worst first)."""
        while not self._kv.grow(request, request.num_planned + 1):
            making.is_short = True
            victim = self._running[-1]
            if victim is request or victim.sequence_id is None:
                return False
            self._running.pop()
            self._ends.append(victim.sequence_id)
            self._kv.leave(victim)
            insort(self._waiting, victim, key=_order)
            self._counts["preemptions"] += 1
        return True

    def _take(self, request: Request, step: SequenceStep, sampled: Sampled | None) -> TokensSampled | None:
        """Take what a step did to a request that is still the same."""
        if sampled is None:
            if step.samples:
                raise RuntimeError(f"the runner gave no result for {request.request_id!r}")
            sampled = Sampled(step.sequence_id)
        if sampled.error is not None:
            return self._finish(request, sampled, "error")
        request.take(step, sampled)
        if request.num_computed >= request.next_full:
            self._kv.register(request)
        if not step.samples:
            return None
        self._counts["draft_accepted"] += sampled.num_draft_accepted
        reason = sampled.finish_reason
        if reason is None:
            if not sampled.token_ids:
                raise RuntimeError(f"the runner sampled nothing for {request.request_id!r}")
            if len(request.tokens) < request.max_length:
                return request.report(sampled, None)
            reason = "length"
        return self._finish(request, sampled, reason)

    def _finish(self, request: Request, sampled: Sampled, reason: FinishReason) -> TokensSampled:
        """End a request; its last event."""
        event = request.report(sampled, reason)
        self._end(request, parks=reason != "error")
        return event

    def _fail_users(self, slot: Slot, error: str) -> list[SchedulerEvent]:
        """End everything that uses `slot`."""
        requests = [each for each in self._requests.values() if each.uses(slot)]
        failed = Sampled(SequenceId(-1), error=error, fault="not_encoded")
        return [
            *(self._finish(each, failed, "error") for each in requests),
            *self._aligns.fail_users(slot, error),
        ]

    def _end(self, request: Request, *, parks: bool) -> None:
        del self._requests[request.request_id]
        if request.sequence_id is None:
            self._waiting.remove(request)
        else:
            self._running.remove(request)
            self._ends.append(request.sequence_id)
        self._kv.end(request, parks=parks)


def _order(request: Request) -> tuple[int, int, int]:
    return request.order
