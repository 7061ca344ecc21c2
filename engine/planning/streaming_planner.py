"""The requests that are fed while they run: admits them to slots of states and plans their chunks.

A request waits for input without a slot until its first chunk is there. From then on it keeps the slot, also
between chunks, until its last chunk is answered or the slot goes to another: to one of the same or a better
group the slot of the request that has been idle longest, or whose the policy names. What has lost its slot
gets `StateEvicted`, and begins again when its input is fed again. A fork gets a copy of its parent's
states, made in front of the first chunk of either that follows. Read `engine/planning/planner.py` for who
calls, `engine/execution/tasks/transduce.py` for what a step does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field

from ...protocols.engine.messages import (
    InputChunk,
    RequestId,
    StateEvicted,
    TaskFailed,
    TransduceEvent,
    TransduceRequest,
)
from ...protocols.errors import BadRequestError, OverloadedError
from .fair_turns import FairLines
from .kv.states import StateSlots
from .limits import SchedulerConfig
from .plan import ChunkOutcome, SequenceId, TransduceStep
from .policies.policy import Admission, Claim, Place, PutBack
from .streaming_request import StreamingRequest

Decide = Callable[[Claim], Admission]
"""The policy's `admit`, with the state of the step being planned."""


@dataclass(slots=True)
class ChunkPlan:
    """The chunks of the plan being made."""

    requests: list[StreamingRequest] = field(default_factory=list)
    steps: list[TransduceStep] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.steps)


@dataclass(slots=True)
class _Copied:
    """A fork whose copy is of states that are not computed yet."""

    fork: StreamingRequest
    sequence_id: SequenceId
    num_pending: int
    """Results that are to come before they are."""


class StreamingPlanner:
    """All fed requests of one engine."""

    def __init__(
        self, config: SchedulerConfig, num_groups: int, states: StateSlots, counts: Counter[str]
    ) -> None:
        self._config = config
        self._states = states
        self._counts = counts
        self._requests: dict[RequestId, StreamingRequest] = {}
        self._num_running = [0] * num_groups
        self._turns = FairLines()
        self._num_stays = 0
        self._num_fed = self._num_fed_before = 0
        self._events: list[TransduceEvent] = []
        self._copied: dict[SequenceId, list[_Copied]] = {}  # by whose states they are

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._requests

    @property
    def num_slots_held(self) -> int:
        """Slots of states that requests hold."""
        return sum(self._num_running)

    @property
    def requests(self) -> Iterable[StreamingRequest]:
        """All, in the order in which they came."""
        return self._requests.values()

    @property
    def waiting(self) -> list[StreamingRequest]:
        """Those without a slot."""
        return [each for each in self._requests.values() if each.slot is None]

    def wanting(self) -> list[int]:
        """How many requests of each group have a chunk to be run. A fork that waits for its parent has none,
        as it would hold up a parent of a worse group, and so itself."""
        counts = [0] * len(self._num_running)
        for request in self._requests.values():
            counts[request.group] += bool(request.unread) and not _awaits_parent(request)
        return counts

    def take_events(self) -> list[TransduceEvent]:
        """The evictions since the last call."""
        events, self._events = self._events, []
        return events

    def submit(self, message: TransduceRequest, place: Place, *, is_admitted: bool = False) -> None:
        """Queue a checked request."""
        request = StreamingRequest(message, place, self._take_turn(place), is_admitted=is_admitted)
        self._requests[request.request_id] = request

    def feed(self, request_id: RequestId, chunk: InputChunk) -> None:
        """See `Scheduler.feed`."""
        request = self._open(request_id)
        self._config.check_chunk(chunk)
        if request.awaits_first and not chunk.is_first:
            return  # sent before its sender knew of the eviction
        if chunk.is_first and (request.num_fed or request.is_fork):
            raise BadRequestError("the input has begun; is_first is allowed once, and after an eviction")
        if len(request.unread) >= self._config.max_unread_chunks:
            raise OverloadedError(
                f"{self._config.max_unread_chunks} chunks of the request wait to be run; feed it more slowly"
            )
        request.feed(chunk)

    def check_fork(self, request_id: RequestId, message: TransduceRequest) -> None:
        """Raise BadRequestError if `message` cannot be a fork of that request."""
        task, own = message.task, self._open(request_id).task
        if (task.lookahead, task.condition) != (own.lookahead, own.condition):
            raise BadRequestError(
                f"a fork's lookahead and condition are {task.lookahead} and {task.condition}; allowed: those "
                f"of its parent, {own.lookahead} and {own.condition}"
            )

    def fork(self, request_id: RequestId, message: TransduceRequest, place: Place) -> None:
        """See `Scheduler.fork`; `message` is checked."""
        parent = self._requests[request_id]
        self.submit(message, place, is_admitted=True)
        fork = self._requests[message.request_id]
        if parent.awaits_first:
            self._lose(fork)
        elif parent.has_begun:
            fork_point = parent.num_fed
            while parent.parent is not None and not parent.num_fed:  # a fork without input of its own
                parent, fork_point = parent.parent, parent.fork_point
            fork.is_fork, fork.parent, fork.fork_point = True, parent, fork_point
            fork.num_frames_before = parent.num_frames
            parent.forks.append(fork)

    def abort(self, request_id: RequestId) -> bool:
        """End a request; False if there is none."""
        request = self._requests.get(request_id)
        if request is not None:
            self._end(request)
        return request is not None

    def begin_step(self) -> ChunkPlan:
        """A new plan is being made."""
        self._num_fed_before = self._num_fed
        return ChunkPlan()

    def plan(self, plan: ChunkPlan, group: int, budget: int, decide: Decide) -> int:
        """Plan one chunk of each request of a group as far as `budget` tokens go, and at least one: first of
        those who waited longest for their turn. Returns the tokens left."""
        ready = [each for each in self._requests.values() if each.group == group and each.unread]
        left, has_slots = budget, True
        for request in sorted(ready, key=_turn):
            if not request.unread:
                continue  # it lost its states meanwhile
            if not self._goes(request, left, budget):
                break
            if request.parent is not None:
                if not (_awaits_parent(request) or self._is_planned(request.parent)):
                    self._begin_fork(request, decide)
            elif request.slot is None and has_slots:
                has_slots = self._begin(request, decide)  # none overtakes one that lacks a slot
            if request.slot is not None:
                left -= self._run(plan, request, decide)
        return max(left, 0)

    def update(
        self, request: StreamingRequest, step: TransduceStep, outcome: ChunkOutcome
    ) -> ChunkOutcome | None:
        """Take what a step did; None if its request is over, or has begun again."""
        if step.sequence_id in self._copied:
            self._settle_copies(step.sequence_id, has_failed=isinstance(outcome, TaskFailed))
        if request.sequence_id != step.sequence_id:
            return None
        request.num_in_flight -= 1
        if isinstance(outcome, TaskFailed):
            self._end(request)
            return outcome
        self._counts["chunks"] += 1
        self._counts["chunks_forked"] += request.is_fork
        self._counts["chunks_again"] += not request.is_fork and request.num_frames < request.num_frames_before
        request.num_frames = outcome.num_frames
        if outcome.finish_reason is not None:
            self._end(request)
        return outcome

    def check(self) -> None:
        """Assert the invariants."""
        slots: list[int] = []
        counts = [0] * len(self._num_running)
        for request in self._requests.values():
            assert request.num_fed == request.num_planned + len(request.unread)
            assert (request.slot is None) == (request.sequence_id is None)
            if request.slot is not None:
                slots.append(request.slot)
                counts[request.group] += 1
                assert request.parent is None, "a fork that runs waits for its states"
            else:
                assert not request.num_planned
                assert not request.num_in_flight
            if request.parent is not None:
                assert request in request.parent.forks
            for fork in request.forks:
                assert fork.parent is request
                assert fork.fork_point >= request.num_planned, "a fork's states were written over"
            assert not (request.awaits_first and request.num_fed)
        assert len(set(slots)) == len(slots), "two requests have one slot"
        assert counts == self._num_running

    def _open(self, request_id: RequestId) -> StreamingRequest:
        """The request, if it can still be fed."""
        request = self._requests.get(request_id)
        if request is None:
            raise BadRequestError(f"no request {request_id!r} is being fed")
        if request.has_ended:
            raise BadRequestError(f"the input of the request {request_id!r} has ended")
        return request

    def _take_turn(self, place: Place) -> int:
        turns = (each.arrival for each in self.waiting if each.place == place)
        lines = (each.line for each in self._requests.values())
        return self._turns.take(place[:2], max(turns, default=0), lines)

    def _goes(self, request: StreamingRequest, left: int, budget: int) -> bool:
        """Whether its next chunk fits in what is left; the first of a share always does."""
        return left >= self._config.num_rows(request.unread[0]) or (left == budget > 0)

    def _run(self, plan: ChunkPlan, request: StreamingRequest, decide: Decide) -> int:
        """Plan the next chunk of one that has a slot; the tokens that it counts as. Forks of the state in
        front of it have it copied before, or lose it."""
        for fork in [each for each in request.forks if each.fork_point == request.num_planned]:
            self._begin_fork(fork, decide)
        self._num_fed += 1
        request.last_fed = self._num_fed
        step = request.step()
        plan.requests.append(request)
        plan.steps.append(step)
        return self._config.num_rows(step.chunk)

    def _begin_fork(self, fork: StreamingRequest, decide: Decide) -> None:
        """Give a fork its copy of the states, or tell it that it has none: its parent does not wait."""
        parent = fork.parent
        assert parent is not None
        if not self._begin(fork, decide):
            self._lose(fork)
            return
        assert parent.slot is not None
        assert fork.slot is not None
        self._states.copy(parent.slot, fork.slot)
        parent.forks.remove(fork)
        fork.parent = None
        self._note_copy(parent, fork)

    def _note_copy(self, parent: StreamingRequest, fork: StreamingRequest) -> None:
        """If what is copied is computed by plans in flight, the fork depends on these."""
        assert parent.sequence_id is not None
        assert fork.sequence_id is not None
        for copies in self._copied.values():
            inherited = [each for each in copies if each.sequence_id == parent.sequence_id]
            copies += [_Copied(fork, fork.sequence_id, each.num_pending) for each in inherited]
        if parent.num_in_flight:
            copied = _Copied(fork, fork.sequence_id, parent.num_in_flight)
            self._copied.setdefault(parent.sequence_id, []).append(copied)

    def _settle_copies(self, sequence_id: SequenceId, *, has_failed: bool) -> None:
        """A result of these states is in: copies of what has failed are worth nothing."""
        copies = self._copied.pop(sequence_id)
        for each in copies:
            each.num_pending -= 1
            if has_failed and each.fork.sequence_id == each.sequence_id:
                self._evict(each.fork)
        pending = [each for each in copies if each.num_pending]
        if pending and not has_failed:
            self._copied[sequence_id] = pending

    def _begin(self, request: StreamingRequest, decide: Decide) -> bool:
        """Begin a stay, if there is a slot."""
        slot = self._slot_for(request, decide)
        if slot is None:
            return False
        request.enter(SequenceId(self._num_stays), slot)
        request.last_fed = self._num_fed
        self._num_stays += 1
        self._num_running[request.group] += 1
        self._turns.begin(request.line, request.arrival)
        return True

    def _slot_for(self, request: StreamingRequest, decide: Decide) -> int | None:
        """A slot that is free, or another's."""
        while True:
            decision = decide(Claim(request.group, "slot", self._num_running))
            may_enter = decision == "enter"
            if may_enter and (slot := self._states.lend()) is not None:
                return slot
            groups = range(request.group, len(self._num_running) if may_enter else request.group + 1)
            victim = self._longest_idle(request, groups)
            if victim is None and may_enter:  # there is no slot of states
                decision = decide(Claim(request.group, "blocks", self._num_running))
            if victim is None and isinstance(decision, PutBack):
                victim = self._longest_idle(request, (decision.group,))
                victim = victim or self._last_running(request, decision.group)
            if victim is None:
                return None
            self._evict(victim)

    def _longest_idle(self, claimant: StreamingRequest, groups: Container[int]) -> StreamingRequest | None:
        """Of those that wait for input in these groups."""
        idle = (each for each in self._holders(claimant) if each.is_idle and each.group in groups)
        return min(idle, key=_last_fed, default=None)

    def _last_running(self, claimant: StreamingRequest, group: int) -> StreamingRequest | None:
        """Of one group the last that came."""
        running = (each for each in self._holders(claimant) if each.group == group)
        return max(running, key=_order, default=None)

    def _holders(self, claimant: StreamingRequest) -> Iterator[StreamingRequest]:
        """Those whose slot the claimant may have."""
        return (
            each
            for each in self._requests.values()
            if each.slot is not None and self._may_lose(each, claimant)
        )

    def _may_lose(self, request: StreamingRequest, claimant: StreamingRequest) -> bool:
        """Who is fed in this step keeps its slot, and so does the parent of a fork that claims one."""
        return request is not claimant.parent and not self._is_planned(request)

    def _is_planned(self, request: StreamingRequest) -> bool:
        """Whether the plan being made has a chunk of it. A plan's copies come before its chunks, so that the
        state behind this one cannot be copied yet."""
        return request.num_in_flight > 0 and request.last_fed > self._num_fed_before

    def _evict(self, request: StreamingRequest) -> None:
        self._counts["state_evictions"] += 1
        self._leave(request)
        self._lose(request)

    def _lose(self, request: StreamingRequest) -> None:
        """Tell a request that it has no states; those that wait for a copy of them have none either."""
        if request.parent is not None:
            request.parent.forks.remove(request)
        request.evict()
        self._events.append(StateEvicted(request.request_id))
        self._lose_forks(request)

    def _lose_forks(self, request: StreamingRequest) -> None:
        for fork in tuple(request.forks):
            self._lose(fork)

    def _leave(self, request: StreamingRequest) -> None:
        if request.slot is not None:
            self._states.take_back(request.slot)
            self._num_running[request.group] -= 1

    def _end(self, request: StreamingRequest) -> None:
        del self._requests[request.request_id]
        if request.parent is not None:
            request.parent.forks.remove(request)
        self._leave(request)
        self._lose_forks(request)
        request.sequence_id = None  # results of plans in flight are ignored


def _awaits_parent(request: StreamingRequest) -> bool:
    """Whether it is a fork of a state that is not there yet."""
    parent = request.parent
    return parent is not None and (parent.slot is None or parent.num_planned < request.fork_point)


def _turn(request: StreamingRequest) -> tuple[int, int, int]:
    """Who is next where not everybody can be: by priority, then round, in which newcomers are first."""
    return request.priority, request.last_fed, request.arrival


def _last_fed(request: StreamingRequest) -> int:
    return request.last_fed


def _order(request: StreamingRequest) -> tuple[int, int, int]:
    return request.order
