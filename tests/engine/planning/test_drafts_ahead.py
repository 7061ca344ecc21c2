"""Drafted sequences are planned again while their drafts are verified: the runner corrects what was supposed.

That no answer changes and no block leaks is shown under random histories, on one group of layers, on windows,
and on states, whose sequences are never planned ahead.
"""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest
from hypothesis import settings
from sensorium.engine.models.qwen3_vl.positions import rotary_positions
from sensorium.engine.planning.kv.groups import PagedGroup
from sensorium.engine.planning.kv.specs import FullAttention, SlidingWindow
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import SequenceId, SequenceStep
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import NgramDraft, Request, RequestId, Sample, SamplingParams
from support.fake_layers import PLAIN, FakeLayers
from support.fake_runner import FakeRunner, answer_alone
from support.scheduler_machine import SESSIONS, SchedulerMachine
from support.step_loop import StepLoop

CONFIG = SchedulerConfig(num_blocks=64, block_size=4, max_context=100, positions=rotary_positions)
PLAIN_REQUEST = Request(RequestId("r"), (1, 2, 3), Sample(SamplingParams(max_tokens=40)))
ANSWER = answer_alone(PLAIN_REQUEST)[0]


def run(draft: tuple[int, ...], *, ahead: bool, budget: int = 8, in_flight: int = 2) -> StepLoop:
    """The request with a draft, verified a part at a time."""
    config = replace(CONFIG, corrects_starts=ahead, max_tokens_per_step=budget)
    loop = StepLoop(Scheduler(config), FakeRunner(num_blocks=64))
    task = msgspec.structs.replace(PLAIN_REQUEST.task, draft_token_ids=draft)
    loop.submit(msgspec.structs.replace(PLAIN_REQUEST, task=task))
    loop.run(max_in_flight=in_flight)
    assert tuple(loop.tokens[PLAIN_REQUEST.request_id]) == ANSWER
    return loop


def supposed(loop: StepLoop) -> list[int]:
    """Of each step how many tokens of drafts in flight it supposes to be accepted."""
    return [step.num_supposed for plan in loop.steps for step in plan.sequences]


def test_a_draft_goes_on_while_its_beginning_is_verified() -> None:
    loop = run(ANSWER, ahead=True)
    assert [(step.start, step.num_draft) for plan in loop.steps for step in plan.sequences] == [
        (0, 5),  # three tokens of the prompt, five of the draft
        (8, 7),
        (16, 7),
        (24, 7),
        (32, 7),
        (40, 1),
    ]
    assert supposed(loop) == [0, 5, 7, 7, 7, 7], "that of the step before"
    assert loop.scheduler.statistics().num_draft_accepted == 34


@pytest.mark.parametrize("in_flight", [2, 3])
@pytest.mark.parametrize("wrong", [0, 2, 7, 20, 39])
def test_a_wrong_draft_is_taken_back_from_steps_in_flight(wrong: int, in_flight: int) -> None:
    draft = (*ANSWER[:wrong], (ANSWER[wrong] + 1) % 40, *ANSWER[wrong + 1 :])
    loop = run(draft, ahead=True, in_flight=in_flight)
    assert any(supposed(loop))
    statistics = loop.scheduler.statistics()
    assert statistics.num_free_blocks == statistics.num_total_blocks
    assert statistics.num_draft_accepted <= wrong


def test_without_the_runner_for_it_nothing_is_supposed() -> None:
    for draft in (ANSWER, ANSWER[:9]):
        loop = run(draft, ahead=False)
        assert not any(supposed(loop))


def test_a_model_with_states_is_not_planned_ahead() -> None:
    config = replace(CONFIG, corrects_starts=True, num_state_slots=4, max_tokens_per_step=8)
    layers = FakeLayers(has_state=True)
    loop = StepLoop(Scheduler(config), FakeRunner(num_blocks=64, layers=layers, num_state_slots=4))
    answer = answer_alone(PLAIN_REQUEST, layers=layers)[0]
    task = msgspec.structs.replace(PLAIN_REQUEST.task, ngram=NgramDraft(3, 2, 1), draft_token_ids=answer)
    loop.submit(msgspec.structs.replace(PLAIN_REQUEST, task=task))
    loop.run(max_in_flight=2)
    assert tuple(loop.tokens[PLAIN_REQUEST.request_id]) == answer
    assert not any(supposed(loop))


def test_a_step_is_moved_back_by_what_was_not_accepted() -> None:
    axes = ((20, 21, 22), (18, 19, 20), (18, 19, 20))
    step = SequenceStep(
        SequenceId(0), (5, 6), 16, (0, 1, 2), feeds_sampled=True, num_draft=2, positions=axes, num_supposed=4
    )
    assert step.from_position(16) is step
    moved = step.from_position(13)
    assert (moved.start, moved.token_ids, moved.num_draft, moved.num_rows) == (13, (), 0, 1)
    assert moved.positions == ((17,), (15,), (15,))
    for start in (11, 17):
        assert step.from_position(start) is step, "the runner finds that fault itself"


class AheadMachine(SchedulerMachine):
    """One group of layers, or windows, or states."""

    sessions = (None, *SESSIONS)

    def draw_cache(self, config: SchedulerConfig, rng: random.Random) -> tuple[SchedulerConfig, FakeLayers]:
        config = replace(config, corrects_starts=True)
        windows = PagedGroup(SlidingWindow(rng.choice([1, 2, 5, 9])))
        groups = rng.choice([PLAIN.groups, PLAIN.groups, (windows,), (PagedGroup(FullAttention()), windows)])
        num_state_slots = rng.choice([0, 0, 0, 4])
        config = replace(
            config,
            groups=groups,
            num_blocks=config.num_blocks * len(groups),
            num_state_slots=num_state_slots,
            snapshot_interval=rng.choice([1, 2]),
        )
        return config, FakeLayers(groups, has_state=num_state_slots > 0)


TestAhead = AheadMachine.TestCase
TestAhead.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
