"""A draft model with a layer of its own that needs the model's hidden states, on the fake runner.

Its drafts come back with results, are verified, and change no answer; what its layers keep is found again,
preempted, parked and taken back with the blocks of the model. Its cells are exactly those it would have
computed alone, which takes that the last block of a prefix hit is computed again.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import settings
from sensorium.engine.models.qwen3_vl.positions import rotary_positions
from sensorium.engine.planning.kv.groups import PagedGroup, layout_of
from sensorium.engine.planning.kv.specs import FullAttention, PagedSpec, SlidingWindow, State
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.proposers import DraftModel
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import (
    AnyRequest,
    NgramDraft,
    Request,
    RequestId,
    Sample,
    SamplingParams,
)
from support.fake_layers import PLAIN, FakeLayers
from support.fake_runner import FakeRunner, answer_alone, seeds_alone
from support.scheduler_machine import SESSIONS, SchedulerMachine
from support.step_loop import StepLoop
from support.toy_drafting import ToyProposer

FULL, WINDOW = FullAttention(token_bytes=8), SlidingWindow(5, token_bytes=8)
MODEL = DraftModel(ToyProposer, layers=(FULL,), needs_hidden_states=True)
CONFIG = SchedulerConfig(num_blocks=64, block_size=4, max_context=60, positions=rotary_positions)


def with_draft_model(kind: str) -> tuple[SchedulerConfig, FakeLayers]:
    """The draft model's layer in the table of the model's, or in one of its own."""
    own = FULL if kind == "shared table" else WINDOW
    model = replace(MODEL, layers=(own,))
    groups = layout_of((FULL,), model.layers, looks_ahead=model.needs_hidden_states).groups
    layers = FakeLayers(groups) if len(groups) == 1 else FakeLayers(groups[:1], draft=groups[1])
    assert layers.draft_group is not None
    return replace(CONFIG, groups=groups, draft_model=model), layers


KINDS = pytest.mark.parametrize("kind", ["shared table", "own table"])


def loop_of(config: SchedulerConfig, layers: FakeLayers) -> tuple[StepLoop, FakeRunner]:
    """The two that work together."""
    runner = FakeRunner(num_blocks=config.num_blocks, block_size=config.block_size, layers=layers)
    return StepLoop(Scheduler(config), runner), runner


def request(name: str, prompt: tuple[int, ...], **changes: object) -> Request[Sample]:
    task = Sample(SamplingParams(max_tokens=12), **changes)  # type: ignore[arg-type]  # any field
    return Request(RequestId(name), prompt, task)


def test_a_table_looks_ahead_that_has_a_layer_of_the_draft_model() -> None:
    layout = layout_of((FULL, WINDOW, FULL, State(16), FULL), (FULL,), looks_ahead=True)
    assert [(group.layers, group.looks_ahead) for group in layout.groups] == [
        ((0,), False),
        ((2,), False),
        ((4,), False),
        ((5,), True),
        ((1,), False),
    ]
    joined = layout_of((FULL,) * 30, (FULL,), looks_ahead=True)
    assert [(group.layers, group.looks_ahead) for group in joined.groups] == [(tuple(range(31)), True)]
    assert not layout_of((FULL,), (FULL,)).groups[0].looks_ahead, "one that needs no hidden states"


@KINDS
def test_drafts_of_the_runner_save_steps_and_are_told_of(kind: str) -> None:
    config, layers = with_draft_model(kind)
    loop, _ = loop_of(config, layers)
    it = request("r", (1, 2, 3))
    loop.submit(it)
    loop.run(max_in_flight=2)
    assert tuple(loop.tokens[it.request_id]) == answer_alone(it)[0]
    drafted = [step for plan in loop.steps for step in plan.sequences if step.num_draft]
    assert all(step.draft_handle is not None for step in drafted)
    statistics = loop.scheduler.statistics()
    assert 0 < statistics.num_draft_accepted < statistics.num_draft_tokens
    assert len(loop.steps) == 12 - statistics.num_draft_accepted


@KINDS
def test_the_last_block_of_a_prefix_hit_is_computed_again(kind: str) -> None:
    config, layers = with_draft_model(kind)
    prompt = tuple(range(1, 14))
    for a_config, own, num_cached in ((CONFIG, PLAIN, 12), (config, layers, 8)):
        loop, runner = loop_of(a_config, own)
        for name in ("first", "second"):
            loop.submit(request(name, prompt))
            loop.run()
        assert loop.first[RequestId("second")].num_cached == num_cached
        if own.draft_group is not None:
            answer = answer_alone(request("second", prompt))[0]
            seeds = seeds_alone(request("second", prompt), answer, own)
            found = {at: seed for (name, at), seed in runner.seeds.items() if name == "second"}
            assert found == {at: seeds[at] for at in found}
            assert found


@KINDS
def test_a_block_whose_next_token_differs_is_not_found_for_the_draft_model(kind: str) -> None:
    """The third prompt has the first two blocks of both others, and its third is that of the second."""
    config, layers = with_draft_model(kind)
    loop, runner = loop_of(config, layers)
    start = (1, 2, 3, 4, 5, 6, 7, 8)
    prompts = {
        "a": (*start, 9, 9, 9, 9, 1, 1),
        "b": (*start, 10, 9, 9, 9, 1, 1),
        "c": (*start, 10, 9, 9, 9, 1),
    }
    for name, prompt in prompts.items():
        loop.submit(request(name, prompt))
        loop.run()
        assert tuple(loop.tokens[RequestId(name)]) == answer_alone(request(name, prompt))[0]
        seeds = seeds_alone(request(name, prompt), loop.tokens[RequestId(name)], layers)
        assert {at: seed for (whose, at), seed in runner.seeds.items() if whose == name}
        assert all(seeds[at] == seed for (whose, at), seed in runner.seeds.items() if whose == name)
    assert [loop.first[RequestId(name)].num_cached for name in prompts] == [0, 4, 8]


@KINDS
def test_other_proposers_come_first_and_are_told_of_their_own(kind: str) -> None:
    config, layers = with_draft_model(kind)
    it = request("r", (1, 2, 5, 1, 2, 5, 1, 2), ngram=NgramDraft(3, 2, 1))
    answer = answer_alone(it)[0]
    for draft in (answer, answer[:4], (*answer[:2], 0, 0)):
        drafted = request("r", it.prompt_token_ids, ngram=NgramDraft(3, 2, 1), draft_token_ids=draft)
        loop, _ = loop_of(config, layers)
        loop.submit(drafted)
        loop.run(max_in_flight=3)
        assert tuple(loop.tokens[it.request_id]) == answer
        handles = {
            step.draft_handle is None for plan in loop.steps for step in plan.sequences if step.num_draft
        }
        assert True in handles


SPECS: list[PagedSpec] = [FullAttention(), FullAttention(), *(SlidingWindow(size) for size in (1, 2, 5, 9))]


class DraftModelMachine(SchedulerMachine):
    """Full attention, a window or a state, and a draft model's layer in the same table or one of its own."""

    sessions = (None, *SESSIONS)

    def draw_cache(self, config: SchedulerConfig, rng: random.Random) -> tuple[SchedulerConfig, FakeLayers]:
        spec = rng.choice(SPECS)
        num_state_slots = rng.choice([0, 0, 4])
        if rng.random() < 0.5:
            layers = FakeLayers((PagedGroup(spec, looks_ahead=True),), num_state_slots > 0)
        else:
            own = rng.choice(SPECS)
            layers = FakeLayers((PagedGroup(spec),), num_state_slots > 0, PagedGroup(own, looks_ahead=True))
        config = replace(
            config,
            groups=layers.all_groups,
            num_blocks=len(layers.all_groups) * config.num_blocks,
            num_state_slots=num_state_slots,
            snapshot_interval=rng.choice([1, 2]),
            corrects_starts=rng.random() < 0.5,
            draft_model=MODEL,
        )
        return config, layers

    def expect_tokens(self, request_id: RequestId, request: AnyRequest, task: Sample) -> None:
        super().expect_tokens(request_id, request, task)
        found = {at: seed for (name, at), seed in self.runner.seeds.items() if name == request_id}
        if found:
            seeds = seeds_alone(request, answer_alone(request, layers=self.layers)[0], self.layers)
            assert found == {at: seeds[at] for at in found}, "the draft model saw something else"


TestDraftModels = DraftModelMachine.TestCase
TestDraftModels.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
