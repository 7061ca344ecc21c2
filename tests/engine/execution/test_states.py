"""States of a real runner: what a scheduler's copies make of them, and what is refused."""

from __future__ import annotations

import random

import msgspec
import pytest
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Copy, Plan
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import (
    NgramDraft,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    SessionKey,
)
from support.recurrent_model import ToyRecurrentModel
from support.step_loop import StepLoop
from support.toy_model import ToyModel
from support.toy_runner import GOOD, greedy, make, run, step

NUM_SLOTS = 5


def make_runner(model: ToyModel, num_blocks: int, num_state_slots: int = NUM_SLOTS) -> Runner:
    torch.set_num_threads(1)
    return Runner(model, num_blocks=num_blocks, block_size=4, num_state_slots=num_state_slots)


def draw_request(
    rng: random.Random, model: ToyModel, number: int, earlier: list[SampleRequest]
) -> SampleRequest:
    """Often the beginning of another with its answer; drafts that are right for a while."""
    prompt: tuple[int, ...] = ()
    if earlier and rng.random() < 0.7:
        before = rng.choice(earlier)
        whole = before.prompt_token_ids + greedy(model, before.prompt_token_ids, 8)
        prompt = whole[: rng.randint(1, len(whole))][:60]
    prompt += tuple(rng.randrange(32) for _ in range(rng.randint(1, 9)))
    draft = (*greedy(model, prompt, 10)[: rng.randint(0, 8)], 3, 3) if rng.random() < 0.5 else ()
    ngram = NgramDraft(3, 2, 1) if rng.random() < 0.3 else None
    task = Sample(SamplingParams(max_tokens=10), draft_token_ids=draft, ngram=ngram)
    session = SessionKey(rng.choice("st")) if rng.random() < 0.4 else None
    return Request(RequestId(f"r{number}"), prompt, task, session=session)


@pytest.mark.parametrize("num_slots", [NUM_SLOTS, 16])
@pytest.mark.parametrize("seed", range(3))
def test_hits_preemption_drafts_and_sessions_change_no_answer(seed: int, num_slots: int) -> None:
    rng = random.Random(seed)
    model = ToyRecurrentModel(seed=seed)
    config = SchedulerConfig(
        num_blocks=rng.choice([24, 40]),
        block_size=4,
        max_context=90,
        max_running=4,
        max_tokens_per_step=rng.choice([6, 64]),
        num_state_slots=num_slots,
        snapshot_interval=rng.choice([1, 2]),
    )
    loop = StepLoop(Scheduler(config), make_runner(model, config.num_blocks, num_slots))
    requests: list[SampleRequest] = []
    for number in range(24):
        requests.append(draw_request(rng, model, number, requests))
        loop.submit(requests[-1])
        for _ in range(rng.choice([0, 2, 12])):
            is_idle = not loop.plan()
            if loop.in_flight and (is_idle or len(loop.in_flight) > 1):
                loop.finish()
    loop.run(max_in_flight=2)
    for request in requests:
        given = tuple(loop.tokens.get(request.request_id, ()))
        expected = greedy(model, request.prompt_token_ids, 10)
        is_revised = loop.ends[request.request_id].finish_reason == "abort"
        assert given == (expected[: len(given)] if is_revised else expected)
    assert any(plan.copies for plan in loop.plans)
    assert num_slots == NUM_SLOTS or loop.scheduler.statistics().num_prefix_hits
    loop.scheduler.check()


def test_a_new_sequence_begins_with_no_state_whatever_its_slot_held() -> None:
    model = ToyRecurrentModel()
    runner = make_runner(model, 64)
    answers = [run(runner, step(number, GOOD, state_slot=0))[0].token_ids for number in range(2)]
    assert answers == [greedy(model, GOOD, 1)] * 2


def test_copies_are_made_in_order() -> None:
    model = ToyRecurrentModel()
    runner = make_runner(model, 8)
    with torch.inference_mode():
        model.states[:] = torch.arange(NUM_SLOTS)[:, None]
    runner.execute(Plan(0, copies=(Copy(1, 2), Copy(2, 3), Copy(4, 1))))
    assert model.states[:, 0].tolist() == [0, 4, 1, 1, 4]


def test_what_a_model_cannot_is_refused() -> None:
    with pytest.raises(ValueError, match="num_state_slots is 3"):
        make_runner(ToyModel(), 8, 3)
    with pytest.raises(ValueError, match="num_state_slots is 0"):
        make_runner(ToyRecurrentModel(), 8, 0)
    with pytest.raises(RuntimeError, match="the model has none"):
        make(ToyModel()).execute(Plan(0, copies=(Copy(0, 1),)))
    plain, recurrent = make(ToyModel()), make_runner(ToyRecurrentModel(), 64)
    for runner, changes, message in (
        (plain, {"more_tables": ((0, 1),)}, "2 block tables, and the layers are in 1 groups"),
        (plain, {"block_table": (-1, 1)}, "a block of the table is not one"),
        (plain, {"state_slot": 0}, "state slot 0"),
        (recurrent, {"state_slot": None}, "state slot None"),
        (recurrent, {"state_slot": NUM_SLOTS}, f"state slot {NUM_SLOTS}"),
    ):
        assert message in str(run(runner, msgspec.structs.replace(step(0, GOOD), **changes))[0].error)


def test_without_memory_sequences_with_states_fail_and_are_not_tried_again() -> None:
    """A part of their layers may have gone on already."""
    calls: list[int] = []

    def fail(num_rows: int) -> None:
        calls.append(num_rows)
        raise MemoryError

    model = ToyRecurrentModel(before_decode=fail)
    found = run(make_runner(model, 64), step(0, GOOD, state_slot=0), step(1, GOOD, state_slot=1))
    assert [each.fault for each in found] == ["out_of_memory"] * 2
    assert len(calls) == 1
