"""First come, first served: in order of arrival, whatever class, priority or caller; right answers."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from sensorium.engine.planning.activity import Presence
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import Lane, Request, RequestId, Sample, SamplingParams, Service
from support.fake_runner import FakeRunner, item
from support.scheduler_dialogs import expect_all_free, expect_answer, generate
from support.step_loop import StepLoop

CONFIG = SchedulerConfig(num_blocks=64, block_size=4, max_context=60, scheduling_policy="first-come")
SERVICES: tuple[Service, ...] = ("batch", "interactive", "live")


def make_loop(**options: int) -> StepLoop:
    config = replace(CONFIG, **options)  # type: ignore[arg-type]
    return StepLoop(Scheduler(config), FakeRunner(num_blocks=config.num_blocks))


def begun(loop: StepLoop) -> list[RequestId]:
    """Requests in the order in which they first began."""
    found = [
        each.begin.request_id for plan in loop.plans for each in plan.sequences if each.begin is not None
    ]
    return list(dict.fromkeys(found))


def test_requests_begin_in_the_order_of_their_arrival() -> None:
    loop = make_loop(max_running=2)
    lanes = [Lane("batch", 1, "a"), Lane("batch", 0, "a"), Lane("interactive", -1, "b"), Lane("live", -5)]
    lanes = [lanes[index % len(lanes)] for index in range(16)]
    names = [RequestId(f"r{index}") for index in range(len(lanes))]
    for name, lane in zip(names, lanes, strict=True):
        loop.submit(Request(name, (1, 2, 3), Sample(SamplingParams(max_tokens=4)), lane=lane))
        loop.plan()
        loop.finish()
    loop.run()
    assert begun(loop) == names
    assert loop.scheduler.statistics().num_preemptions == 0


def test_live_takes_no_slot_from_what_runs_and_statistics_still_count_by_class() -> None:
    loop = make_loop(max_running=2)
    for index in range(3):
        loop.submit(generate(f"b{index}", service="batch", max_tokens=20))
    loop.submit(generate("live", service="live", max_tokens=1))
    loop.step()
    statistics = loop.scheduler.statistics()
    assert (statistics.num_running_batch, statistics.num_waiting_batch) == (2, 1)
    assert (statistics.num_running_live, statistics.num_waiting_live) == (0, 1)
    loop.run()
    assert begun(loop) == ["b0", "b1", "b2", "live"]


def test_where_blocks_run_out_the_last_that_came_is_put_back_and_the_first_never() -> None:
    loop = make_loop(num_blocks=7, prefix_caching=False)
    requests = [
        generate(f"r{index}", (index, 2, 3), service=SERVICES[index], max_tokens=15) for index in range(3)
    ]
    for request in requests:
        loop.submit(request)
    loop.run()
    assert list(loop.ends) == ["r0", "r1", "r2"]
    statistics = loop.scheduler.statistics()
    assert statistics.num_preemptions_batch == 0, "the first"
    assert statistics.num_preemptions_live > 0, "the last"
    for request in requests:
        expect_answer(loop, request)
    expect_all_free(loop)


@pytest.mark.parametrize("seed", range(10))
def test_every_request_gets_the_answer_it_would_get_alone(seed: int) -> None:
    rng = random.Random(seed)
    loop = make_loop(num_blocks=16, max_running=3, max_tokens_per_step=8, prefix_caching=False)
    requests = [
        generate(
            f"r{index}",
            (rng.randrange(4),) * rng.randint(1, 12),
            service=rng.choice(SERVICES),
            priority=rng.randint(-1, 1),
            max_tokens=rng.randint(1, 20),
        )
        for index in range(25)
    ]
    for request in requests:
        loop.submit(request)
        if rng.random() < 0.5:
            loop.step()
            loop.scheduler.check()
    loop.run(max_in_flight=2)
    for request in requests:
        expect_answer(loop, request)
    assert begun(loop) == [request.request_id for request in requests]
    expect_all_free(loop)


def test_one_encode_runs_alongside_the_steps_though_the_policy_allows_more() -> None:
    presence = Presence()
    speaker = Scheduler(replace(CONFIG, scheduling_policy="service-classes"), presence)
    speaker.submit(generate("live", service="live"))
    speaker.schedule()
    config = replace(CONFIG, overlap_encoder=True)
    loop = StepLoop(Scheduler(config, presence), FakeRunner(num_blocks=config.num_blocks))
    for slot in range(3):
        loop.scheduler.encode(slot, item(f"i{slot}").features)
        loop.submit(generate(f"r{slot}", on=f"i{slot}", max_tokens=2), slot)
    loop.run()
    assert [len(plan.encodes) for plan in loop.overlapped_plans] == [1, 1, 1]
    assert not any(plan.encodes for plan in loop.plans)
    assert len(loop.ends) == 3
    loop.plan()
    assert not loop.overlapped
