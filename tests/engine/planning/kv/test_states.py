"""Layers that keep a state: snapshots, what they are found by, and how a rejected draft is undone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from sensorium.engine.planning.kv.groups import ONE_GROUP
from sensorium.engine.planning.kv.states import StateSlots
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import (
    MediaSpan,
    ProbabilityProbe,
    RequestId,
    SampleRequest,
    SessionKey,
)
from support.fake_layers import FakeLayers
from support.fake_runner import FakeRunner, answer_alone, item
from support.scheduler_dialogs import expect_all_free, generate, span
from support.step_loop import StepLoop

LAYERS = FakeLayers(ONE_GROUP, has_state=True)
CONFIG = SchedulerConfig(num_blocks=64, block_size=4, max_context=128, num_state_slots=6, snapshot_interval=2)
PROMPT = tuple(range(1, 22))  # 21 tokens: the last boundary is behind 16


def make_loop(**given: int) -> StepLoop:
    options: dict[str, Any] = dict(given)
    config = replace(CONFIG, **options)
    runner = FakeRunner(num_blocks=64, layers=LAYERS, num_state_slots=config.num_state_slots)
    return StepLoop(Scheduler(config), runner)


def run(loop: StepLoop, request: SampleRequest, num_cached: int) -> None:
    loop.submit(request)
    loop.run()
    given = tuple(loop.tokens[request.request_id]), loop.ends[request.request_id].finish_reason
    assert given == answer_alone(request, layers=LAYERS)
    assert loop.first[request.request_id].num_cached == num_cached


def test_a_prompt_is_cut_so_that_its_last_boundary_has_a_snapshot() -> None:
    loop = make_loop()
    run(loop, generate("a", PROMPT, max_tokens=1), 0)
    assert [(step.start, step.num_rows) for plan in loop.steps for step in plan.sequences] == [
        (0, 16),
        (16, 5),
    ]
    (copy,) = loop.steps[1].copies
    assert copy.source == loop.steps[0].sequences[0].state_slot
    run(loop, generate("same", PROMPT, max_tokens=1), 16)
    run(loop, generate("longer", (*PROMPT, 30, 31), max_tokens=1), 16)
    run(loop, generate("shorter", PROMPT[:12], max_tokens=1), 0)
    expect_all_free(loop)


def test_snapshots_longest_unused_go_first_and_a_request_may_have_the_last_slot() -> None:
    loop = make_loop(num_state_slots=3)
    others = [tuple(range(number, number + 21)) for number in (20, 21)]
    run(loop, generate("a", PROMPT, max_tokens=1), 0)
    run(loop, generate("b", others[0], max_tokens=1), 0)
    run(loop, generate("a again", PROMPT, max_tokens=1), 16)
    run(loop, generate("c", others[1], max_tokens=1), 0)
    run(loop, generate("a once more", PROMPT, max_tokens=1), 16)
    run(loop, generate("b again", others[0], max_tokens=1), 0)
    one = make_loop(num_state_slots=1)
    run(one, generate("a", PROMPT, max_tokens=3), 0)
    run(one, generate("b", others[0], max_tokens=3), 0)


def test_a_snapshot_is_found_only_once_its_step_is_back() -> None:
    """The step that made the state fails behind the plan with the copy; the prefix's blocks are another's."""
    loop = make_loop(num_state_slots=2)
    run(loop, generate("a", PROMPT, max_tokens=1), 0)
    run(loop, generate("b", tuple(range(20, 41)), max_tokens=1), 0)
    num_before = len(loop.plans)
    broken, good = generate("broken", PROMPT), generate("good", (*PROMPT[:16], 30))
    assert isinstance(loop.runner, FakeRunner)
    loop.runner.failing.add(RequestId("broken"))
    loop.submit(broken)
    loop.plan()
    loop.plan()
    assert loop.plans[num_before + 1].copies
    loop.finish()
    assert loop.ends[RequestId("broken")].finish_reason == "error"
    run(loop, good, 0)
    assert loop.scheduler.statistics().num_cached_blocks
    expect_all_free(loop)


@pytest.mark.parametrize("num_right", [0, 1, 3, 5])
def test_a_draft_not_accepted_whole_goes_back_to_the_state_of_before(num_right: int) -> None:
    answer = answer_alone(generate("a", PROMPT, max_tokens=20), layers=LAYERS)[0]
    draft = (*answer[: 1 + num_right], *(0 if each else 1 for each in answer[1 + num_right : 6]))
    loop = make_loop(snapshot_interval=16)
    run(loop, generate("a", PROMPT, max_tokens=20, draft=draft), 0)
    drafted = [index for index, plan in enumerate(loop.steps) if plan.sequences[0].num_draft]
    assert len(drafted) == 1
    step, after = (loop.steps[index].sequences[0] for index in (drafted[0], drafted[0] + 1))
    assert any(copy.source == step.state_slot for copy in loop.steps[drafted[0]].copies)
    if num_right == 5:
        assert (after.start, after.state_slot) == (step.start + 6, step.state_slot)
    else:
        assert (after.start, after.num_rows) == (step.start, num_right + 2)
        assert after.state_slot != step.state_slot
    expect_all_free(loop)


def test_an_item_is_fed_again_with_the_draft_behind_it() -> None:
    """A prompt whose last token is an item's, fed alone in front of a draft."""
    media = (span("A", 16, 1),)
    prompt = (*PROMPT[:16], 3)
    answer = answer_alone(replace_media(generate("a", prompt), media), layers=LAYERS)[0]
    wrong = 1 if answer[1] != 1 else 2
    loop = make_loop()
    loop.scheduler.encode(0, item("A").features)
    request = replace_media(generate("a", prompt, draft=(answer[0], wrong)), media)
    loop.submit(request, None, (0,))
    loop.run()
    assert any(step.num_draft and step.start == 16 for plan in loop.steps for step in plan.sequences)
    assert tuple(loop.tokens[RequestId("a")]) == answer


def test_a_probe_is_answered_once_though_its_position_is_fed_again() -> None:
    """The last token of a prompt, fed alone in front of a draft."""
    prompt = PROMPT[:17]
    answer = answer_alone(generate("a", prompt), layers=LAYERS)[0]
    wrong = 1 if answer[1] != 1 else 2
    loop = make_loop()
    request = generate("a", prompt, draft=(answer[0], wrong), probe=ProbabilityProbe(16, 2))
    run(loop, request, 0)
    probed = [step.probe for plan in loop.steps for step in plan.sequences if step.start == 16]
    assert probed == [ProbabilityProbe(16, 2), None]
    assert list(loop.probabilities) == [RequestId("a")]


def replace_media(request: SampleRequest, media: tuple[MediaSpan, ...]) -> SampleRequest:
    return msgspec.structs.replace(request, media=media)


def test_a_session_takes_its_state_at_its_length_or_a_snapshot() -> None:
    loop = make_loop()

    def revise(name: str, prompt: tuple[int, ...], num_cached: int) -> None:
        request = generate(name, prompt, max_tokens=1)
        run(loop, msgspec.structs.replace(request, session=SessionKey("s")), num_cached)

    revise("a", PROMPT, 0)
    revise("longer", (*PROMPT, 30, 31), 21)
    assert not loop.steps[-1].copies, "the slot itself was taken over"
    revise("shorter", (*PROMPT[:18], 33), 16)
    loop.scheduler.close_session(SessionKey("s"))
    expect_all_free(loop)


def test_what_ends_at_a_full_block_leaves_its_state_as_a_snapshot() -> None:
    loop = make_loop(num_state_slots=1, snapshot_interval=4)
    loop.submit(generate("a", PROMPT[:12], max_tokens=8))
    loop.step()
    loop.scheduler.abort(RequestId("a"))
    run(loop, generate("again", PROMPT, max_tokens=1), 12)
    assert not any(plan.copies for plan in loop.steps), "in the slot where it was"
    expect_all_free(loop)


def test_the_next_snapshot_and_the_cut() -> None:
    states = StateSlots(CONFIG)
    assert [states.next_snapshot(number) for number in range(5)] == [2, 2, 4, 4, 6]
    assert [states.cut(3, number) for number in (1, 4, 5, 6, 13, 14)] == [1, 4, 5, 5, 13, 13]
    uncached = StateSlots(replace(CONFIG, prefix_caching=False))
    assert uncached.cut(3, 6) == 6
