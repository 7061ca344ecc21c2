"""Classes of service in plans: what a better one takes, and the share that the worse ones keep."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Plan
from sensorium.engine.planning.policies.service_classes import HEAVY_PATIENCE, LIVE_PATIENCE
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.engine.planning.service_classes import SERVICES
from sensorium.protocols.engine.messages import ProbabilityProbe, RequestId, Service
from sensorium.protocols.errors import OverloadedError
from support.fake_runner import FakeRunner, item
from support.scheduler_dialogs import align, expect_all_free, expect_answer, generate, make_loop
from support.step_loop import StepLoop


def rows(loop: StepLoop, plan: Plan) -> dict[str, int]:
    """Rows of each request in a plan."""
    names = {
        step.sequence_id: str(step.begin.request_id)
        for each in loop.plans
        for step in each.sequences
        if step.begin is not None
    }
    return {names[step.sequence_id]: step.num_rows for step in plan.sequences}


def step(loop: StepLoop) -> dict[str, int]:
    """One whole step; rows of each request in it."""
    plan = loop.plan()
    loop.finish()
    loop.scheduler.check()
    return rows(loop, plan)


def batch_running(loop: StepLoop, count: int, *, max_tokens: int = 40) -> None:
    """Batch requests, all of them decoding."""
    for number in range(count):
        loop.submit(generate(f"b{number}", (number, 7), service="batch", max_tokens=max_tokens))
    step(loop)


def test_a_better_class_takes_a_slot_at_once_from_the_latest_of_the_worst() -> None:
    loop = make_loop(max_running=4)
    batch_running(loop, 4)
    live = generate("live", service="live")
    loop.submit(live)
    assert "live" in step(loop)
    statistics = loop.scheduler.statistics()
    assert (statistics.num_preemptions_batch, statistics.num_preemptions) == (1, 1)
    assert (statistics.num_running_live, statistics.num_running_batch, statistics.num_waiting_batch) == (
        1,
        3,
        1,
    )
    loop.run()
    assert next(iter(loop.ends)) == "live"
    for number in range(4):
        expect_answer(loop, generate(f"b{number}", (number, 7), service="batch", max_tokens=40))
    expect_all_free(loop)


def test_the_class_in_between_gives_a_slot_too_where_it_is_the_worst_that_runs() -> None:
    loop = make_loop(max_running=4)
    for number in range(4):
        loop.submit(generate(f"i{number}", (number, 7), max_tokens=40))
    step(loop)
    loop.submit(generate("live", service="live"))
    assert "live" in step(loop)
    statistics = loop.scheduler.statistics()
    assert (statistics.num_running_live, statistics.num_running, statistics.num_preemptions) == (1, 4, 1)


def test_within_a_class_nobody_loses_a_slot() -> None:
    loop = make_loop(max_running=2)
    for name, priority in (("a", 1), ("b", 1), ("best", -5)):
        loop.submit(generate(name, priority=priority))
        step(loop)
    assert loop.scheduler.statistics().num_preemptions == 0


def test_what_was_put_back_waits_while_live_goes_on_and_resumes_from_the_prefix_cache() -> None:
    loop = make_loop(max_running=4, num_low_priority_tokens=2, num_blocks=200)
    batch_running(loop, 4, max_tokens=60)
    for _ in range(20):
        step(loop)
    prefilled = loop.scheduler.statistics().num_prefill_tokens
    for number in range(6):  # one live request after the other
        loop.submit(generate(f"l{number}", service="live", max_tokens=3))
        for _ in range(3):
            assert f"l{number}" in step(loop)
    assert loop.scheduler.statistics().num_preemptions == 1, "the slot is kept for the next one"
    loop.run()
    fed_again = loop.scheduler.statistics().num_prefill_tokens - prefilled - 6 * 3
    assert fed_again <= 5, "its full blocks were found again"


def test_what_is_reported_with_the_first_tokens_is_not_reported_again_after_a_preemption() -> None:
    loop = make_loop(max_running=1, prefix_caching=False)
    probe = ProbabilityProbe(1, 2)
    loop.submit(generate("probed", service="batch", probe=probe, prompt_logprobs=0, max_tokens=9))
    step(loop)
    first = loop.first[RequestId("probed")]
    assert first.probe_probability is not None
    assert first.prompt_logprobs is not None
    loop.submit(generate("live", service="live"))
    step(loop)
    assert loop.scheduler.statistics().num_preemptions_batch == 1
    loop.run()  # the loop asserts that no later event has them
    assert RequestId("probed") in loop.ends


def test_a_step_beside_live_is_short_and_worse_ones_take_turns_in_it() -> None:
    loop = make_loop(max_running=20, num_low_priority_tokens=4)
    batch_running(loop, 12)
    loop.submit(generate("live", service="live", max_tokens=20))
    loop.submit(generate("long", tuple(range(40)), service="interactive"))
    fed = [step(loop) for _ in range(13)]
    assert all("live" in each and sum(each.values()) - each["live"] <= 4 for each in fed)
    for number in range(12):
        assert sum(f"b{number}" in each for each in fed) in (2, 3), "everybody has the same"
    assert sum(each.get("long", 0) for each in fed) == 2 * 13, "half of what the worse ones get"
    loop.run()


def test_where_not_all_can_have_a_token_who_reads_its_prompt_has_a_quarter() -> None:
    loop = make_loop(max_running=20, num_low_priority_tokens=4, max_tokens_per_step=16)
    batch_running(loop, 12)
    loop.submit(generate("long", tuple(range(40)), service="batch"))
    step(loop)
    assert "long" in step(loop)
    loop.submit(generate("live", service="live", max_tokens=20))
    fed = [step(loop) for _ in range(8)]
    assert all(each["long"] == 1 and len(each) == 1 + 4 for each in fed)
    loop.run()


def test_where_rows_are_dear_worse_ones_stand_back_for_three_of_four_steps() -> None:
    loop = make_loop(max_running=20, num_low_priority_tokens=4, low_priority_interval=4)
    batch_running(loop, 12)
    loop.submit(generate("live", service="live", max_tokens=9))
    assert [len(step(loop)) for _ in range(8)] == [1, 1, 1, 5] * 2
    step(loop)
    assert [len(step(loop)) for _ in range(3)] == [4, 4, 4], "live is expected back"
    loop.run()


def test_worse_classes_get_their_share_under_endless_live_load() -> None:
    """Live always has more waiting than can run; the others go on, in every step."""
    loop = make_loop(max_running=8, num_low_priority_tokens=4, num_blocks=1000, max_tokens_per_step=16)
    number = 0
    loop.submit(generate("chat", service="interactive", max_tokens=30))
    loop.submit(generate("batch", service="batch", max_tokens=30))
    for count in range(64):
        while loop.scheduler.statistics().num_waiting_live < 10:
            loop.submit(generate(f"l{number}", (number % 40, 3), service="live", max_tokens=9))
            number += 1
        fed = step(loop)
        assert sum(rows for name, rows in fed.items() if name[0] == "l") <= 12
        if count > 4 and RequestId("batch") not in loop.ends:
            assert fed["chat"] == fed["batch"] == 1
    assert {"chat", "batch"} <= set(loop.ends)


@pytest.mark.parametrize("num_prompt", [2, 3, 4])
def test_who_lacks_a_block_gives_its_turn_to_those_who_could_have_its_blocks(num_prompt: int) -> None:
    loop = make_loop(num_blocks=4, max_tokens_per_step=3, prefix_caching=False)
    requests = [generate("a", (1,), max_tokens=9), generate("b", (1, 2, 3, 4)[:num_prompt], max_tokens=9)]
    for request in requests:
        loop.submit(request)
    step(loop)
    step(loop)
    # Behind a live one there is a token a step for both: who waited longest is next, and cannot go on.
    loop.submit(generate("l", (1,), max_tokens=1, service="live"))
    loop.run()
    for request in requests:
        expect_answer(loop, request)
    expect_all_free(loop)


def test_a_better_class_takes_the_blocks_it_needs_to_begin() -> None:
    loop = make_loop(num_blocks=12)
    batch_running(loop, 3, max_tokens=14)
    while loop.scheduler.statistics().num_free_blocks:
        step(loop)
    live = generate("live", (1, 2, 3, 4, 5, 6, 7), service="live")
    loop.submit(live)
    assert "live" in step(loop)
    loop.run()
    expect_answer(loop, live)


def test_who_begins_takes_no_blocks_from_its_own_class() -> None:
    """Those of a worse one are not enough: it waits, and gets them before anybody worse."""
    loop = make_loop(num_blocks=12)
    requests = [
        generate("first", tuple(range(30)), service="live", max_tokens=9),
        generate("batch", (40, 2, 3), service="batch", max_tokens=20),
        generate("next", (41,) * 24, service="live"),
    ]
    for request in requests:
        loop.submit(request)
        step(loop)
    loop.run()
    statistics = loop.scheduler.statistics()
    assert (statistics.num_preemptions_live, statistics.num_preemptions_batch) == (0, 1)
    assert list(loop.ends) == ["first", "next", "batch"]
    for request in requests:
        expect_answer(loop, request)


def test_an_encode_for_live_passes_a_queue_of_others() -> None:
    loop = make_loop(max_encodes_per_step=2, num_blocks=400)
    for slot in range(20):
        loop.scheduler.encode(slot, item(f"i{slot}").features)
    for slot in range(19):
        loop.submit(generate(f"b{slot}", (slot,), on=f"i{slot}", service="batch", max_tokens=3), slot)
    step(loop)
    loop.submit(generate("live", on="i19", service="live", max_tokens=60), 19)
    encodes = []
    for _ in range(3 * HEAVY_PATIENCE):
        plan = loop.plan()
        loop.finish()
        encodes.append([each.slot for each in plan.encodes])
    assert encodes[0] == [19]
    assert sum(map(len, encodes[:HEAVY_PATIENCE])) == 1, "no other encode delays it"
    assert sum(map(len, encodes)) == 3, "but now and then one must be"
    loop.run()


@pytest.mark.parametrize("most", [2, 4])
def test_encodes_for_live_in_every_step_leave_others_theirs(most: int) -> None:
    loop = make_loop(num_blocks=400, max_encodes_per_step=most)
    loop.scheduler.encode(0, item("file").features)
    loop.submit(generate("file", on="file", service="batch", max_tokens=3), 0)
    num_live, encodes = 0, []
    for _ in range(3 * HEAVY_PATIENCE):
        for _ in range(2 * most):
            num_live += 1
            loop.scheduler.encode(num_live, item(f"i{num_live}").features)
            live = generate(f"live{num_live}", on=f"i{num_live}", service="live", max_tokens=1)
            loop.submit(live, num_live)
        plan = loop.plan()
        loop.finish()
        encodes.append([each.slot for each in plan.encodes])
    assert all(len(each) == most for each in encodes[:HEAVY_PATIENCE])
    assert sum(0 in each for each in encodes) == 1, "encoded in its turn"
    assert sum(map(len, encodes)) >= most * len(encodes) - 2, "and the others lost next to nothing"
    loop.run()


def first_to_encode(loop: StepLoop, slot: int) -> int:
    """How many steps pass before the encode of `slot` is planned."""
    for number in range(100):
        plan = loop.plan()
        loop.finish()
        if slot in [each.slot for each in plan.encodes]:
            return number
    raise AssertionError("never encoded")


@pytest.mark.parametrize(
    ("service", "name", "num_tokens", "steps"),
    [
        ("live", "long", 3, 2),  # as soon as the other has its answer
        ("live", "long", 60, LIVE_PATIENCE),
        ("live", "ab", 60, 0),
        ("interactive", "long", 60, 0),
    ],
)
def test_a_long_encode_lets_live_answers_that_are_being_written_be_finished(
    service: Service, name: str, num_tokens: int, steps: int
) -> None:
    loop = make_loop(max_rows_during_live=3, frames_per_row=1, num_blocks=400)
    loop.scheduler.encode(0, item("A").features)
    loop.submit(generate("writing", on="A", service=service, max_tokens=num_tokens), 0)
    step(loop)
    loop.scheduler.encode(1, item(name).features)
    loop.submit(generate("next", on=name, service=service, max_tokens=3), 1)
    assert first_to_encode(loop, 1) == steps
    loop.scheduler.encode(2, item("long2").features)
    loop.submit(generate("last", on="long2", service=service, max_tokens=3), 2)
    assert first_to_encode(loop, 2) <= LIVE_PATIENCE, "those who write need not all end"
    loop.run()
    assert len(loop.ends) == 3


def test_alignments_follow_the_same_rule() -> None:
    loop = make_loop()
    loop.scheduler.encode(0, item("A").features)
    for number in range(4):
        loop.scheduler.submit(align(f"b{number}", service="batch"), 0)
    loop.scheduler.submit(align("live", service="live"), 0)
    plan = loop.plan()
    assert [each.request.request_id for each in plan.wholes] == ["live"]
    loop.finish()
    loop.run()
    assert list(loop.outcomes) == ["live", "b0", "b1", "b2", "b3"]


def test_worse_classes_fill_no_better_ones_queue() -> None:
    """Without keys there is one caller, who gets all of each."""
    loop = make_loop(max_waiting=8)
    for number in range(8):
        loop.submit(generate(f"b{number}", service="batch"))
    with pytest.raises(OverloadedError):
        loop.submit(generate("b8", service="batch"))
    for number in range(8):
        loop.submit(generate(f"l{number}", service="live"))
    with pytest.raises(OverloadedError):
        loop.submit(generate("i", service="interactive"))
    loop.run()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    max_running=st.integers(4, 9),
    num_low_priority=st.integers(2, 6),
    max_in_flight=st.integers(1, 2),
)
def test_no_better_one_waits_while_worse_ones_have_more_than_their_share(
    seed: int, max_running: int, num_low_priority: int, max_in_flight: int
) -> None:
    """With blocks enough for all."""
    rng = random.Random(seed)
    config = SchedulerConfig(
        num_blocks=600,
        block_size=4,
        max_context=60,
        max_running=max_running,
        max_tokens_per_step=64,
        num_low_priority_tokens=num_low_priority,
        prefix_caching=False,
    )
    loop = StepLoop(Scheduler(config), FakeRunner(num_blocks=600))
    services: dict[str, Service] = {}
    for _ in range(60):
        for _ in range(rng.choice([0, 0, 1, 3])):
            name = f"{len(services)}"
            services[name] = rng.choice(SERVICES)
            prompt = (1,) * rng.randint(1, 9)
            loop.submit(generate(name, prompt, service=services[name], max_tokens=rng.randint(1, 12)))
        while len(loop.in_flight) >= max_in_flight:
            loop.finish()
        before = loop.scheduler.statistics()
        fed = rows(loop, loop.plan())
        after = loop.scheduler.statistics()
        loop.scheduler.check()
        wanting = [
            place
            for place, name in enumerate(SERVICES)
            if getattr(before, f"num_waiting_{name}") + getattr(before, f"num_running_{name}")
        ]
        low_priority = sum(
            count for name, count in fed.items() if SERVICES.index(services[name]) > min(wanting)
        )
        assert low_priority <= min(num_low_priority, 32)
        if after.num_waiting_live:
            most = min(num_low_priority, max_running // 2)
            assert after.num_running_interactive + after.num_running_batch <= most
            assert after.num_running_live >= max_running - most
        for name in SERVICES:
            if max_in_flight == 1 and getattr(before, f"num_running_{name}"):
                assert any(services[each] == name for each in fed), "who has a slot gets on in every step"
    loop.run()
    assert set(loop.ends) == set(services)
