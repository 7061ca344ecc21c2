"""The scheduler under random histories: every request ends once, with what it would get alone.

Pools are tiny, so that preemption and eviction are common; prompts repeat and continue each other, so that
cached and parked KV is found; up to three plans are in flight; items are encoded (in steps, or beside some of
them), dropped and freed; steps fail. The same history, replayed from its record, always gives the same plans.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sensorium.engine.models.qwen3_vl.positions import rotary_positions
from sensorium.engine.planning.events import EncodeDropped, EncodeFailed, WindowEncoded
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Plan, SequenceId, Slot
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.engine.planning.service_classes import SERVICES
from sensorium.protocols.engine.messages import (
    AnyRequest,
    ContentHash,
    KvSource,
    Lane,
    MediaSpan,
    NgramDraft,
    Pool,
    Pooled,
    Prefill,
    Prefilled,
    ProbabilityProbe,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    SessionKey,
    Task,
    TaskFailed,
)
from sensorium.protocols.errors import BadRequestError, OverloadedError
from support.fake_layers import PLAIN, FakeLayers
from support.fake_runner import (
    NAN_ID,
    STOP_ID,
    UNENCODABLE,
    FakeRunner,
    answer_alone,
    fails_alone,
    item,
    pooled_alone,
    probability,
)
from support.scheduler_record import record, replay
from support.step_loop import StepLoop

MAX_SLOTS = 5
BAD = UNENCODABLE.decode()
GRIDS = {"A": (1, 2, 1), "B": None, "C": None, BAD: None}
SIZES = {"A": 2, "B": 6, "C": 6, BAD: 2}
PLACEHOLDER = 3
PLACES = ["other", "other", "broken", "empty"]
SESSIONS = [SessionKey("s"), SessionKey("t")]

configs = st.builds(
    SchedulerConfig,
    positions=st.just(rotary_positions),
    num_blocks=st.integers(10, 24),
    block_size=st.sampled_from([2, 4]),
    max_context=st.just(60),
    max_running=st.sampled_from([1, 3, 6]),
    max_waiting=st.just(6),
    max_tokens_per_step=st.sampled_from([3, 8, 100]),
    scheduling_policy=st.sampled_from(["service-classes", "service-classes", "first-come"]),
    num_low_priority_tokens=st.sampled_from([1, 2, 8]),
    max_batch_tokens_per_step=st.sampled_from([None, 2]),
    low_priority_interval=st.sampled_from([1, 3]),
    max_prefill_chunk=st.sampled_from([None, 2]),
    max_encodes_per_step=st.integers(1, 2),
    max_encoder_tokens_per_step=st.sampled_from([2, 5, 100]),
    overlap_encoder=st.booleans(),
    prefix_caching=st.sampled_from([True, True, False]),
    max_parked_blocks=st.sampled_from([None, 0, 3]),
)


class SchedulerMachine(RuleBasedStateMachine):
    """Commands go to a scheduler, whose calls are recorded, and its runner."""

    sessions: Sequence[SessionKey | None] = (None, None, *SESSIONS)
    """What requests are drawn to belong to."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[RequestId, AnyRequest] = {}
        self.over: set[RequestId] = set()  # refused, aborted or revised
        self.shaken: set[RequestId] = set()  # those a failing step or a dropped encode may have ended
        self.users: dict[RequestId, set[Slot]] = {}
        self.contents: dict[Slot, str] = {}
        self.filled: set[Slot] = set()
        self.num_slots = 0
        self.names: dict[SequenceId, RequestId] = {}
        self.closed: set[RequestId] = set()  # live when their session was closed

    def draw_cache(self, config: SchedulerConfig, rng: random.Random) -> tuple[SchedulerConfig, FakeLayers]:
        """What the model's layers keep: here all of them all tokens."""
        return config, PLAIN

    @initialize(config=configs, seed=st.integers(0, 2**32))
    def start(self, config: SchedulerConfig, seed: int) -> None:
        config, self.layers = self.draw_cache(config, random.Random(seed))
        self.config = config
        self.runner = FakeRunner(
            num_blocks=config.num_blocks,
            block_size=config.block_size,
            layers=self.layers,
            num_state_slots=config.num_state_slots,
        )
        self.runner.transfers.broken_places = {"broken"}
        self.loop = StepLoop(Scheduler(config), self.runner)
        self.calls = record(self.loop.scheduler)

    @rule(seed=st.integers(0, 2**32))
    def live_on(self, seed: int) -> None:
        """A stretch of ordinary life: hypothesis' own histories are too short for prefixes to meet."""
        rng = random.Random(seed)
        for _ in range(10):
            if rng.random() < 0.35:
                self.submit(rng.getrandbits(32))
            elif rng.random() < 0.2 and len(self.contents) < MAX_SLOTS:
                self.encode(rng.choice(["A", "B", "C"]))
            else:
                self.work(rng.choice([1, 2, 3, 9]), rng.randint(1, 3), rng.randint(0, 4))

    @rule(seed=st.integers(0, 2**32))
    def submit(self, seed: int) -> None:
        rng = random.Random(seed)
        session = rng.choice(self.sessions)
        earlier = self.draw_earlier(rng, session)
        prompt: tuple[int, ...]
        media: tuple[MediaSpan, ...]
        prompt, media = ((), ()) if earlier is None else self.draw_beginning(rng, earlier)
        by_name = {name: slot for slot, name in self.contents.items() if self.is_good(slot)}
        if by_name and rng.random() < 0.3:
            name = rng.choice(list(by_name))
            media = (*media, MediaSpan(ContentHash(name), len(prompt), SIZES[name], GRIDS[name]))
            prompt += (PLACEHOLDER,) * SIZES[name]
        prompt += rng.choice(
            [(), (1, 2, 5, 1, 2, 5, 6, 8, 9, 4), (1,) * rng.randint(1, 6), (rng.randint(1, 5),)]
        )
        if rng.random() < 0.03:
            prompt += (NAN_ID,)
        encoding = None if earlier is None else earlier.encoder_hash
        if rng.random() < 0.1:
            encoding = ContentHash(rng.choice(list(by_name))) if by_name else None
        if encoding is not None and encoding not in by_name:
            encoding = None
        request = Request[Task](
            RequestId(f"r{len(self.requests)}"),
            prompt or (1, 2, 5),
            draw_task(rng, len(prompt)),
            encoder_hash=encoding,
            media=media,
            session=session,
            cache_salt="x" if rng.random() < 0.04 else "",
            lane=Lane(rng.choice(SERVICES), rng.choice([0, 0, 0, -1, 1])),
        )
        if isinstance(request.task, Sample) and rng.random() < 0.4:
            draft = answer_alone(request, layers=self.layers)[0][: rng.randint(0, 12)]
            draft += tuple(rng.randrange(40) for _ in range(rng.randint(0, 3)))
            request = msgspec.structs.replace(
                request, task=msgspec.structs.replace(request.task, draft_token_ids=draft)
            )
        if self.layers is PLAIN and rng.random() < 0.3:
            source = KvSource(rng.choice(PLACES), rng.randint(1, len(request.prompt_token_ids) + 4))
            request = msgspec.structs.replace(request, kv_from=source)
        slots = tuple(by_name[span.content_hash] for span in media)
        self.try_submit(request, None if encoding is None else by_name[encoding], slots)

    def draw_earlier(self, rng: random.Random, session: SessionKey | None) -> AnyRequest | None:
        """A request whose prompt is continued: mostly the session's last one."""
        if not self.requests or rng.random() < 0.1:
            return None
        mine = [each for each in self.requests.values() if session is not None and each.session == session]
        return mine[-1] if mine and rng.random() < 0.9 else rng.choice(list(self.requests.values()))

    def draw_beginning(
        self, rng: random.Random, earlier: AnyRequest
    ) -> tuple[tuple[int, ...], tuple[MediaSpan, ...]]:
        """What an earlier prompt said, its answer so far, or a part; sometimes with another item in it."""
        whole = earlier.prompt_token_ids + tuple(self.loop.tokens.get(earlier.request_id, ()))
        prompt = whole[: max(len(whole) - rng.choice([0, 0, 1, 2, 3, 5, rng.randrange(len(whole))]), 0)][:40]
        names = {name for slot, name in self.contents.items() if self.is_good(slot)}
        media: tuple[MediaSpan, ...] = ()
        for span in earlier.media:
            if span.content_hash == "B" and "C" in names and rng.random() < 0.3:
                span = msgspec.structs.replace(span, content_hash=ContentHash("C"))
            if span.start >= len(prompt):
                break
            if span.content_hash not in names or span.start + span.num_tokens > len(prompt):
                prompt = prompt[: span.start]
                break
            media = (*media, span)
        return prompt, media

    def try_submit(self, request: AnyRequest, slot: Slot | None, media_slots: tuple[Slot, ...]) -> None:
        """Submit, and see that a live request of the session ends and nobody else does."""
        request_id, session = request.request_id, request.session
        revised = [
            each
            for each in self.live()
            if session is not None and self.requests[each].session == session and each not in self.closed
        ]
        self.requests[request_id] = request
        try:
            self.loop.submit(request, slot, media_slots)
        except (BadRequestError, OverloadedError):
            self.over.add(request_id)
            return
        self.users[request_id] = {*media_slots, *(() if slot is None else (slot,))}
        assert all(self.is_aborted(each) for each in revised)
        self.over.update(revised)

    def is_aborted(self, request_id: RequestId) -> bool:
        """Whether its end, or its one outcome, says so."""
        if request_id in self.loop.ends:
            return self.loop.ends[request_id].finish_reason == "abort"
        return isinstance(self.loop.outcomes[request_id], TaskFailed)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(self.live()))
        self.over.add(request_id)
        assert self.loop.scheduler.abort(request_id)

    @rule(key=st.sampled_from(SESSIONS))
    def close_session(self, key: SessionKey) -> None:
        self.loop.scheduler.close_session(key)
        for request_id in self.live():
            if self.requests[request_id].session == key:
                self.closed.add(request_id)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def fail_a_step(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(self.live()))
        self.shaken.add(request_id)
        self.runner.failing.add(request_id)

    @precondition(lambda self: len(self.contents) < MAX_SLOTS)
    @rule(name=st.sampled_from(["A", "B", "C", BAD]))
    def encode(self, name: str) -> None:
        self.contents[self.num_slots] = name
        self.loop.scheduler.encode(self.num_slots, item(name).features)
        self.num_slots += 1

    @precondition(lambda self: set(self.contents) - self.filled)
    @rule(data=st.data())
    def drop_encode(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(set(self.contents) - self.filled)))
        events = self.loop.scheduler.drop_encode(slot)
        self.loop.take(events)
        if EncodeDropped(slot) in events:
            del self.contents[slot]
            self.shaken |= {request_id for request_id, slots in self.users.items() if slot in slots}

    @precondition(lambda self: self.freeable())
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.freeable()))
        del self.contents[slot]
        self.filled.remove(slot)
        self.loop.take(self.loop.scheduler.free(slot))

    @rule(
        num_steps=st.sampled_from([1, 1, 2, 4, 12]),
        max_in_flight=st.integers(1, 3),
        encode_steps=st.integers(0, 4),
    )
    def work(self, num_steps: int, max_in_flight: int, encode_steps: int) -> None:
        """Steps; what is encoded beside them is done after `encode_steps`."""
        num_before = len(self.loop.encode_events)
        since = 0
        for _ in range(num_steps):
            since = since + 1 if self.loop.overlapped else 0
            if self.loop.overlapped and since > encode_steps:
                self.loop.finish_overlapped()
                self.loop.plan_overlapped()
                since = 0
            while len(self.loop.in_flight) >= max_in_flight:
                self.loop.finish()
            best = self.best_wanting()
            plan = self.loop.plan()
            self.loop.scheduler.check()
            self.expect_bounded_low_priority(plan, best)
            assert sum(step.num_rows for step in plan.sequences) <= self.config.max_tokens_per_step
            assert len(plan.sequences) <= self.config.max_running
            assert len(plan.encodes) <= self.config.max_encodes_per_step
            assert len(self.loop.overlapped) <= 1
            self.export_blocks()
            assert all(
                each.is_overlapped and each.encodes and not each.sequences for each in self.loop.overlapped
            )
        events = self.loop.encode_events[num_before:]
        self.filled |= {event.slot for event in events if isinstance(event, WindowEncoded)}

    def export_blocks(self) -> None:
        """What can be found here is at other places, too, and stays there."""
        for name, block in self.loop.scheduler._kv.pool._by_hash.items():
            for place in ("other", "broken"):
                self.runner.transfers.export(place, name, self.runner.cells_of(block))

    def best_wanting(self) -> int:
        """The best class that has a request."""
        services = [SERVICES.index(self.requests[each].lane.service) for each in self.live()]
        return min(services, default=len(SERVICES))

    def expect_bounded_low_priority(self, plan: Plan, best: int) -> None:
        """Classes worse than the best have no more of a step than their share of it."""
        self.names.update(
            {each.sequence_id: each.begin.request_id for each in plan.sequences if each.begin is not None}
        )
        rows = [0] * len(SERVICES)
        for step in plan.sequences:
            service = self.requests[self.names[step.sequence_id]].lane.service
            rows[SERVICES.index(service)] += step.num_rows
        if self.config.scheduling_policy == "first-come":
            return
        most = min(self.config.num_low_priority_tokens, self.config.max_tokens_per_step // 2)
        assert sum(rows[best + 1 :]) <= max(most, 2), "two classes that live left something to"

    @precondition(lambda self: self.loop.in_flight)
    @rule()
    def finish(self) -> None:
        num_before = len(self.loop.encode_events)
        self.loop.finish()
        events = self.loop.encode_events[num_before:]
        self.filled |= {event.slot for event in events if isinstance(event, WindowEncoded)}

    def is_good(self, slot: Slot) -> bool:
        """Whether a request on it is not refused."""
        return slot in self.filled or not any(
            isinstance(event, EncodeFailed) and event.slot == slot for event in self.loop.encode_events
        )

    def live(self) -> list[RequestId]:
        return sorted(set(self.requests) - self.over - set(self.loop.ends) - set(self.loop.outcomes))

    def freeable(self) -> list[Slot]:
        """Filled slots that no live request uses: those the ledger may free."""
        used = {slot for request_id in self.live() for slot in self.users[request_id]}
        return sorted(self.filled - used)

    @invariant()
    def queues_and_blocks_are_sound(self) -> None:
        if hasattr(self, "loop"):
            self.loop.scheduler.check()

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        self.loop.run(max_in_flight=2)
        for request_id, request in self.requests.items():
            self.expect_answer(request_id, request)
        for key in SESSIONS:
            self.loop.scheduler.close_session(key)
        statistics = self.loop.scheduler.statistics()
        assert statistics.num_free_blocks == statistics.num_total_blocks
        assert (statistics.num_running, statistics.num_waiting, statistics.num_sessions_parked) == (0, 0, 0)
        assert self.runner.num_sequences == 0
        self.loop.scheduler.check()
        again = [plan for plan in replay(self.loop.scheduler.config, self.calls) if plan]
        assert [plan for plan in again if not plan.is_overlapped] == self.loop.plans
        assert [plan for plan in again if plan.is_overlapped] == self.loop.overlapped_plans

    def expect_answer(self, request_id: RequestId, request: AnyRequest) -> None:
        if isinstance(request.task, Sample):
            self.expect_tokens(request_id, request, request.task)
        else:
            self.expect_outcome(request_id, request)

    def expect_outcome(self, request_id: RequestId, request: AnyRequest) -> None:
        """One outcome, and of a vector no row that was not fed or found as it is."""
        assert request_id not in self.loop.tokens
        if request_id in self.over:
            return
        found = self.loop.outcomes[request_id]
        if isinstance(found, TaskFailed):
            assert request_id in self.shaken or fails_alone(request)
            return
        assert not fails_alone(request)
        match request.task:
            case Pool() as pool:
                assert isinstance(found, Pooled)
                assert found.values == pooled_alone(request, pool, self.layers)
            case _:
                assert isinstance(found, Prefilled)

    def expect_tokens(self, request_id: RequestId, request: AnyRequest, task: Sample) -> None:
        given = tuple(self.loop.tokens.get(request_id, ()))
        expected, reason = answer_alone(request, layers=self.layers)
        assert given == expected[: len(given)]
        if request_id in self.over:
            return
        end = self.loop.ends[request_id]
        if request_id not in self.shaken or end.finish_reason != "error":
            assert (given, end.finish_reason) == (expected, reason)
        if given:
            first = self.loop.first[request_id]
            if task.probe is not None:
                assert first.probe_probability == probability(task.probe, request.prompt_token_ids)
            if task.sampling.prompt_logprobs is not None:
                assert first.prompt_logprobs is not None
                values = tuple(-float(token) for token in request.prompt_token_ids[1:])
                assert first.prompt_logprobs.logprobs == values


def draw_task(rng: random.Random, num_prompt: int) -> Task:
    """Mostly what samples; what reads a prompt only ends in one of its steps."""
    if rng.random() < 0.15:
        return Pool(rng.choice(["cls", "last", "mean"]))
    if rng.random() < 0.1:
        return Prefill()
    return Sample(
        draw_sampling(rng),
        ngram=NgramDraft(3, 2, 1) if rng.random() < 0.2 else None,
        probe=ProbabilityProbe(rng.randrange(max(num_prompt, 1)), 2) if rng.random() < 0.2 else None,
    )


def draw_sampling(rng: random.Random) -> SamplingParams:
    """Rules that the fake model obeys."""
    return SamplingParams(
        max_tokens=rng.choice([1, 6, 12, 12]),
        stop_token_ids=rng.choice([(), (STOP_ID, 9, 10, 11)]),
        begin_suppress_token_ids=rng.choice([(), (STOP_ID,)]),
        presence_penalty=rng.choice([0.0, 0.0, 1.0]),
        prompt_logprobs=0 if rng.random() < 0.1 else None,
    )
