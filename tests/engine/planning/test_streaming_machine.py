"""Requests that are fed under random histories: each is given what its whole input gives at once.

Slots are few, so that evictions are common; chunks of many requests are cut at random, queue up, and are run
in up to three plans in flight; requests fork, fail and are aborted; feeders learn late of an
eviction; the process of the models is killed. The fake runner's tokens depend on all input so far, and it
sees two requests that write one state.
"""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Plan
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.engine.planning.service_classes import SERVICES
from sensorium.protocols.engine.messages import (
    Lane,
    Request,
    RequestId,
    TaskFailed,
    Transduce,
    TransduceRequest,
)
from sensorium.protocols.errors import OverloadedError
from support.fake_runner import FakeRunner
from support.fake_transducer import FRAMES_PER_ROW, NOT_A_NUMBER, transduced_alone
from support.feeding import Feeder
from support.scheduler_record import record, replay
from support.step_loop import StepLoop

MAX_FRAMES = 24
PATIENCE = 3000
"""Turns in which everything must be answered once there is no new request."""

configs = st.builds(
    SchedulerConfig,
    num_blocks=st.just(1),
    max_running=st.sampled_from([1, 2, 3, 8]),
    num_state_slots=st.sampled_from([1, 2, 3, 8]),
    max_waiting=st.just(8),
    max_tokens_per_step=st.sampled_from([1, 3, 100]),
    scheduling_policy=st.sampled_from(["service-classes", "service-classes", "first-come"]),
    num_low_priority_tokens=st.sampled_from([1, 2, 8]),
    max_batch_tokens_per_step=st.sampled_from([None, 2]),
    low_priority_interval=st.sampled_from([1, 3]),
    input_frames_per_row=st.just(FRAMES_PER_ROW),
    max_rows_per_chunk=st.just(3),
    max_unread_chunks=st.sampled_from([2, 20]),
)


class StreamingMachine(RuleBasedStateMachine):
    """Feeders, a scheduler, whose calls are recorded, and its runner."""

    def __init__(self) -> None:
        super().__init__()
        self.feeders: dict[RequestId, Feeder] = {}
        self.over: set[RequestId] = set()  # refused, aborted, or answered before a process was killed
        self.shaken: set[RequestId] = set()  # those that a failing step may have ended
        self.num_requests = 0

    @initialize(config=configs)
    def start(self, config: SchedulerConfig) -> None:
        self.config = config
        self.open()

    def open(self) -> None:
        runner = FakeRunner(num_blocks=1, num_state_slots=self.config.num_state_slots)
        self.runner = runner
        self.loop = StepLoop(Scheduler(self.config), runner)
        self.calls = record(self.loop.scheduler)

    @rule(seed=st.integers(0, 2**32))
    def live_on(self, seed: int) -> None:
        """A stretch of ordinary life."""
        rng = random.Random(seed)
        for _ in range(12):
            draw = rng.random()
            if draw < 0.15:
                self.submit(rng.getrandbits(32))
            elif draw < 0.25:
                self.fork(rng.getrandbits(32))
            elif draw < 0.65:
                self.feed(rng.getrandbits(32))
            else:
                self.work(rng.choice([1, 2, 5]), rng.randint(1, 3))

    @rule(seed=st.integers(0, 2**32))
    def submit(self, seed: int) -> None:
        rng = random.Random(seed)
        task = Transduce(rng.choice([0, 1]), rng.choice([0, 1]), rng.choice([False, True]))
        feeder = Feeder(self.draw_request(rng, task), draw_frames(rng), transduced_alone)
        try:
            self.loop.submit(feeder.request)
        except OverloadedError:
            return
        self.feeders[feeder.request.request_id] = feeder

    @rule(seed=st.integers(0, 2**32))
    def fork(self, seed: int) -> None:
        """What would come if the input of a request went on otherwise."""
        rng = random.Random(seed)
        parents = [each for each in self.feeding() if not each.has_ended]
        if not parents:
            return
        parent = rng.choice(parents)
        feeder = parent.forked(self.draw_request(rng, parent.request.task), draw_frames(rng)[:6])
        self.feeders[feeder.request.request_id] = feeder
        self.loop.take(self.loop.scheduler.fork(parent.request.request_id, feeder.request))

    def draw_request(self, rng: random.Random, task: Transduce) -> TransduceRequest:
        self.num_requests += 1
        lane = Lane(rng.choice(SERVICES), rng.choice([0, 0, -1]), rng.choice(["", "a"]))
        return Request(RequestId(f"r{self.num_requests}"), (), task, lane=lane)

    @rule(seed=st.integers(0, 2**32))
    def feed(self, seed: int) -> None:
        """The next chunk of a request, of any length."""
        rng = random.Random(seed)
        feeding = [each for each in self.feeding() if not each.has_ended or self.is_evicted(each)]
        if feeding:
            self.feed_one(rng, rng.choice(feeding), is_late=rng.random() < 0.3)

    def feed_one(self, rng: random.Random, feeder: Feeder, *, is_late: bool = False) -> None:
        """Feed it, after what is known of an eviction, unless that comes late."""
        request_id = feeder.request.request_id
        if self.is_evicted(feeder) and not is_late:
            self.loop.evicted.remove(request_id)
            feeder.begin_again(is_again=True)
        if feeder.has_ended:
            return
        end, chunk = feeder.draw_chunk(rng)
        try:
            self.loop.scheduler.feed(request_id, chunk)
        except OverloadedError:
            return
        feeder.fed(end, chunk)

    @precondition(lambda self: self.feeding())
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        feeder = data.draw(st.sampled_from(self.feeding()))
        self.over.add(feeder.request.request_id)
        assert self.loop.scheduler.abort(feeder.request.request_id)
        self.loop.take(self.loop.scheduler.take_events())

    @precondition(lambda self: self.feeding())
    @rule(data=st.data())
    def fail_a_step(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(self.feeding())).request.request_id
        self.shaken.add(request_id)
        self.runner.failing.add(request_id)

    @rule(num_steps=st.sampled_from([1, 1, 2, 4, 12]), max_in_flight=st.integers(1, 3))
    def work(self, num_steps: int, max_in_flight: int) -> None:
        for _ in range(num_steps):
            while len(self.loop.in_flight) >= max_in_flight:
                self.loop.finish()
            plan = self.loop.plan()
            self.loop.scheduler.check()
            self.expect_bounded(plan)

    @precondition(lambda self: self.loop.in_flight)
    @rule()
    def finish(self) -> None:
        self.loop.finish()

    @rule()
    def kill(self) -> None:
        """The models' process dies with all it has; requests are made again, forks as any other."""
        feeding = self.feeding()
        for feeder in self.feeders.values():
            self.expect_answer(feeder)
        self.over |= set(self.feeders) - {each.request.request_id for each in feeding}
        self.open()
        for feeder in feeding:
            try:
                self.loop.submit(feeder.request)
            except OverloadedError:
                self.over.add(feeder.request.request_id)
            feeder.begin_again(is_again=self.num_requests % 2 == 0)

    def expect_bounded(self, plan: Plan) -> None:
        """A step has no more rows than its bound and a chunk of each group."""
        config = self.config
        assert len(plan.transduces) <= min(config.max_running, config.num_state_slots)
        assert len({each.slot for each in plan.transduces}) == len(plan.transduces)
        rows = [config.num_rows(each.chunk) for each in plan.transduces]
        most = config.max_tokens_per_step + len(SERVICES) * (config.max_rows_per_chunk - 1)
        assert sum(rows) <= most

    def feeding(self) -> list[Feeder]:
        """Those whose request is not over."""
        return [each for each in self.feeders.values() if not self.is_over(each.request.request_id)]

    def is_over(self, request_id: RequestId) -> bool:
        events = self.loop.transduced.get(request_id)
        is_answered = bool(events and events[-1].finish_reason)
        return request_id in self.over or request_id in self.loop.outcomes or is_answered

    def is_evicted(self, feeder: Feeder) -> bool:
        return feeder.request.request_id in self.loop.evicted

    @invariant()
    def all_is_sound(self) -> None:
        if hasattr(self, "loop"):
            self.loop.scheduler.check()

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        rng = random.Random(0)
        for _ in range(PATIENCE):
            feeding = self.feeding()
            if not feeding:
                break
            for feeder in feeding:
                self.feed_one(rng, feeder)
            self.work(1, 2)
            if self.loop.in_flight and rng.random() < 0.5:
                self.loop.finish()
        assert not self.feeding(), "everything is answered"
        self.loop.run()
        for feeder in self.feeders.values():
            self.expect_answer(feeder)
        statistics = self.loop.scheduler.statistics()
        assert (statistics.num_state_slots, statistics.num_running, statistics.num_waiting) == (0, 0, 0)
        plans = [plan for plan in replay(self.config, self.calls) if plan]
        assert plans == self.loop.plans, "the same calls give the same plans"

    def expect_answer(self, feeder: Feeder) -> None:
        """What it was given is the beginning of its answer, or all of it."""
        request_id = feeder.request.request_id
        if request_id in self.over:
            return
        failed = self.loop.outcomes.get(request_id)
        events = self.loop.transduced.get(request_id, [])
        if not self.is_evicted(feeder):
            feeder.take(events)
        if failed is not None:
            assert isinstance(failed, TaskFailed)
            assert feeder.fails or request_id in self.shaken
        elif events and events[-1].finish_reason:
            assert not feeder.fails
            assert [token for event in events for token in event.token_ids] == [
                token for token, _ in feeder.expected()
            ]


def draw_frames(rng: random.Random) -> list[float]:
    """Some input; few have what cannot be computed."""
    frames = [float(rng.randint(1, 3)) for _ in range(rng.choice([0, 1, 5, rng.randrange(MAX_FRAMES)]))]
    if frames and rng.random() < 0.03:
        frames[rng.randrange(len(frames))] = NOT_A_NUMBER
    return frames


TestStreaming = StreamingMachine.TestCase
TestStreaming.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
