"""Layers that see a window: what it holds, what is found again, and who waits when blocks run dry."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from sensorium.engine.planning.kv.groups import HOLE, PagedGroup
from sensorium.engine.planning.kv.specs import ChunkedLocal, FullAttention, SlidingWindow
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import RequestId, SampleRequest, SessionKey
from sensorium.protocols.errors import BadRequestError
from support.fake_layers import FakeLayers
from support.fake_runner import FakeRunner, answer_alone
from support.scheduler_dialogs import expect_all_free, generate
from support.step_loop import StepLoop

FULL = PagedGroup(FullAttention())
WINDOW = PagedGroup(SlidingWindow(6))
CONFIG = SchedulerConfig(num_blocks=40, block_size=4, max_context=120, max_tokens_per_step=8)
PROMPT = tuple(range(1, 31))


def make_loop(*groups: PagedGroup, num_blocks: int = 40) -> StepLoop:
    config = replace(CONFIG, groups=groups, num_blocks=num_blocks)
    return StepLoop(Scheduler(config), FakeRunner(num_blocks=num_blocks, layers=FakeLayers(groups)))


def expect_answer(loop: StepLoop, request: SampleRequest, *groups: PagedGroup) -> None:
    given = tuple(loop.tokens[request.request_id]), loop.ends[request.request_id].finish_reason
    assert given == answer_alone(request, layers=FakeLayers(groups))


def test_a_window_holds_a_bounded_number_of_blocks_however_long_the_context() -> None:
    loop = make_loop(WINDOW, num_blocks=6)
    request = generate("a", PROMPT, max_tokens=80)
    loop.submit(request)
    loop.run()
    expect_answer(loop, request, WINDOW)
    last = loop.steps[-1].sequences[0].block_table
    assert len(last) == 28
    assert sum(block != HOLE for block in last) <= 3
    expect_all_free(loop)


def test_what_cannot_fit_alone_is_refused_and_a_window_counts_as_what_it_holds() -> None:
    loop = make_loop(FULL, WINDOW, num_blocks=20)
    with pytest.raises(BadRequestError, match=r"together they need 33 blocks of 4 tokens, the engine has 20"):
        loop.submit(generate("a", PROMPT, max_tokens=80))
    fitting = generate("b", PROMPT, max_tokens=28)
    loop.submit(fitting)
    loop.run()
    expect_answer(loop, fitting, FULL, WINDOW)


@pytest.mark.parametrize("groups", [(WINDOW,), (FULL, WINDOW), (PagedGroup(ChunkedLocal(8)),)])
def test_a_prefix_is_found_by_its_last_blocks(groups: tuple[PagedGroup, ...]) -> None:
    loop = make_loop(*groups)
    for name, prompt, num_cached in (
        ("a", PROMPT, 0),
        ("same", PROMPT, 28),
        ("longer", (*PROMPT, 40, 41), 28),
        ("other", (*PROMPT[:18], 40, 41), 16),
    ):
        request = generate(name, prompt)
        loop.submit(request)
        loop.run()
        expect_answer(loop, request, *groups)
        assert loop.first[RequestId(name)].num_cached == num_cached
    begun = next(plan.sequences[0] for plan in loop.steps if plan.sequences[0].start == 28)
    windowed = (begun.block_table, *begun.more_tables)[-1]
    assert windowed[:5] == (HOLE,) * 5


def test_a_session_goes_on_where_its_window_allows() -> None:
    loop = make_loop(FULL, WINDOW)
    scheduler = loop.scheduler
    for name, prompt, num_cached in (
        ("a", PROMPT, 0),
        ("longer", (*PROMPT, 40), 30),
        ("cut far back", (*PROMPT[:10], 42), 8),
    ):
        request = msgspec.structs.replace(generate(name, prompt, max_tokens=1), session=SessionKey("s"))
        loop.submit(request)
        loop.run()
        expect_answer(loop, request, FULL, WINDOW)
        assert loop.first[RequestId(name)].num_cached == num_cached
    scheduler.close_session(SessionKey("s"))
    expect_all_free(loop)


def test_who_is_fed_in_a_step_keeps_its_blocks_though_a_better_prompt_lacks_some() -> None:
    """The window is wider than the prompts, so that nothing slides out."""
    wide = PagedGroup(SlidingWindow(100))
    loop = make_loop(wide, num_blocks=8)
    worse = generate("worse", (40, 41), max_tokens=20)
    loop.submit(worse)
    loop.step()
    better = generate("better", PROMPT, max_tokens=2, priority=-1)
    loop.submit(better)
    loop.run()
    assert loop.scheduler.statistics().num_preemptions == 1
    assert [len(plan.sequences) for plan in loop.steps[5:8]] == [1, 1, 1], "first the worse, then the better"
    for plan in loop.steps:
        assert not {step.sequence_id for step in plan.sequences} & set(plan.ends)
    for request in (worse, better):
        expect_answer(loop, request, wide)
    expect_all_free(loop)
