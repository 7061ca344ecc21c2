"""The scheduler's task: plans in flight, plans before text, and nothing for the wrong user of an id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
import trio
from sensorium.actors.inference.detokenizer import StreamId
from sensorium.actors.inference.scheduler import SchedulerActor
from sensorium.engine.planning.activity import Presence
from sensorium.engine.planning.encoder.effects import Encode
from sensorium.engine.planning.events import EncodeDropped, EncodeFailed, WindowEncoded
from sensorium.engine.planning.plan import Plan
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import FinishReason, Lane, RequestId, TokensSampled
from sensorium.protocols.errors import BadRequestError
from support.fake_engine import NUM_BLOCKS, make_scheduler_config, request
from support.fake_runner import FakeRunner, answer_alone, item
from trio.testing import wait_all_tasks_blocked

FILE, LIVE = Lane("batch"), Lane("live")


class Bench:
    """A scheduler actor whose device waits to be told to work."""

    def __init__(self, num_plans: int, *, interval: int = 1, presence: Presence | None = None) -> None:
        config = replace(make_scheduler_config(plans_in_flight=num_plans), low_priority_interval=interval)
        self.runner = FakeRunner(num_blocks=NUM_BLOCKS)
        self.log: list[str] = []
        self.plans: list[Plan] = []
        self.tokens: dict[StreamId, list[int]] = {}
        self.reasons: dict[StreamId, FinishReason] = {}
        self.reports: list[WindowEncoded | EncodeFailed | EncodeDropped] = []
        self.actor = SchedulerActor(
            make_scheduler=lambda: Scheduler(config, presence),
            execute=self.execute,
            decode=self.decode,
            report=self.reports.append,
        )
        self.handle = self.actor.handle

    def execute(self, plan: Plan) -> None:
        self.log.append("plan")
        self.plans.append(plan)

    def decode(self, tokens: Sequence[tuple[StreamId, TokensSampled]]) -> None:
        self.log.append("text")
        for stream_id, sampled in tokens:
            self.tokens.setdefault(stream_id, []).extend(sampled.token_ids)
            if sampled.finish_reason is not None:
                self.reasons[stream_id] = sampled.finish_reason

    async def step(self, busy_s: float = 0.0) -> None:
        """Execute the oldest plan that is in flight."""
        result = self.runner.execute(self.plans[self.runner.num_steps])
        self.handle.step_done(replace(result, busy_s=busy_s))
        await wait_all_tasks_blocked()

    async def finish(self) -> None:
        """Execute plans until there are none."""
        while self.runner.num_steps < len(self.plans):
            await self.step()


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench(1)
    await nursery.start(bench.actor.run)
    return bench


async def test_the_device_gets_its_plan_before_text_is_made(bench: Bench) -> None:
    await bench.handle.submit(request("a"), None, StreamId(1))
    await wait_all_tasks_blocked()
    await bench.step()
    assert bench.log == ["plan", "plan", "text"]


async def test_one_plan_in_flight_then_everything_that_came_meanwhile(bench: Bench) -> None:
    await bench.handle.submit(request("a"), None, StreamId(1))
    await wait_all_tasks_blocked()
    bench.handle.perform(Encode(0, item("A").features))
    await bench.handle.submit(request("b", on="A"), 0, StreamId(2))
    await bench.handle.submit(request("c"), None, StreamId(3))
    await wait_all_tasks_blocked()
    assert len(bench.plans) == 1
    await bench.step()
    begun = [step.begin.request_id for step in bench.plans[1].sequences if step.begin is not None]
    assert begun == ["b", "c"]
    assert len(bench.plans[1].sequences) == 3
    assert [step.slot for step in bench.plans[1].encodes] == [0]
    await bench.step()
    assert bench.reports == [WindowEncoded(0, 1000)]


async def test_with_two_plans_the_next_is_made_before_the_result_is_in(nursery: trio.Nursery) -> None:
    bench = Bench(2)
    await nursery.start(bench.actor.run)
    await bench.handle.submit(request("a"), None, StreamId(1))
    await wait_all_tasks_blocked()
    assert [step.feeds_sampled for plan in bench.plans for step in plan.sequences] == [False, True]
    await bench.step()
    assert bench.log == ["plan", "plan", "plan", "text"]
    await bench.finish()
    assert tuple(bench.tokens[StreamId(1)]) == answer_alone(request("a"))[0]


async def test_the_request_a_revision_ends_gets_its_last_event(bench: Bench) -> None:
    await bench.handle.submit(request("a", session="s"), None, StreamId(1))
    await wait_all_tasks_blocked()
    await bench.handle.submit(request("b", (5, 6), session="s"), None, StreamId(2))
    await bench.finish()
    assert bench.reasons == {StreamId(1): "abort", StreamId(2): "length"}


async def test_a_late_abort_does_not_reach_the_next_user_of_an_id(bench: Bench) -> None:
    await bench.handle.submit(request("a", max_tokens=1), None, StreamId(1))
    await wait_all_tasks_blocked()
    await bench.step()
    await bench.handle.submit(request("a", (5, 6)), None, StreamId(2))
    await wait_all_tasks_blocked()
    bench.handle.abort(RequestId("a"), StreamId(1))
    await bench.finish()
    assert tuple(bench.tokens[StreamId(2)]) == answer_alone(request("a", (5, 6)), None)[0]


async def test_a_late_result_does_not_reach_the_next_user_of_an_id(bench: Bench) -> None:
    await bench.handle.submit(request("a", (1, 2)), None, StreamId(1))
    await wait_all_tasks_blocked()
    bench.handle.abort(RequestId("a"), StreamId(1))
    await bench.handle.submit(request("a", (5, 6)), None, StreamId(2))
    await bench.finish()
    assert StreamId(1) not in bench.tokens
    assert tuple(bench.tokens[StreamId(2)]) == answer_alone(request("a", (5, 6)), None)[0]


async def test_a_refusal_is_the_answer(bench: Bench) -> None:
    with pytest.raises(BadRequestError, match="prompt is empty"):
        await bench.handle.submit(request("a", ()), None, StreamId(1))
    assert bench.actor.statistics().num_waiting == 0


@pytest.mark.parametrize(("busy_s", "pause_s"), [(0.01, 0.03), (5.0, 0.1)])
async def test_an_engine_pauses_between_steps_while_another_one_serves_live_requests(
    busy_s: float, pause_s: float, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    presence = Presence()
    files, speech = (Bench(1, interval=4, presence=presence) for _ in range(2))
    for each in (files, speech):
        await nursery.start(each.actor.run)
    await files.handle.submit(
        msgspec.structs.replace(request("a", max_tokens=9), lane=FILE), None, StreamId(1)
    )
    await wait_all_tasks_blocked()
    await files.step(busy_s)
    assert len(files.plans) == 2, "nobody speaks"
    await speech.handle.submit(
        msgspec.structs.replace(request("b", max_tokens=2), lane=LIVE), None, StreamId(1)
    )
    await wait_all_tasks_blocked()
    began = trio.current_time()
    await files.step(busy_s)
    await speech.step(busy_s)
    while len(files.plans) == 2:  # noqa: ASYNC110 (the virtual clock goes on)
        await trio.sleep(0.001)
    assert pause_s <= trio.current_time() - began <= pause_s + 0.01
    assert len(speech.plans) == 2, "live requests pause for nobody"
    await files.step(busy_s)
    assert len(files.plans) == 3
    began = trio.current_time()
    await speech.finish()
    while len(files.plans) == 3:  # noqa: ASYNC110
        await trio.sleep(0.001)
    assert trio.current_time() - began <= 0.01, "it goes on once they are answered"
