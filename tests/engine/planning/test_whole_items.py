"""Where rows of an item or a prompt see all of it, they are fed in one step, however small the budget is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.engine.messages import RequestId
from sensorium.protocols.errors import BadRequestError
from support.fake_runner import item
from support.scheduler_dialogs import expect_all_free, expect_answer, generate, make_loop, span
from support.step_loop import StepLoop


def fed(loop: StepLoop) -> list[tuple[int, int]]:
    """From where to where each step of the prompt's first stay goes."""
    return [
        (each.start, each.start + each.num_rows)
        for plan in loop.plans
        for each in plan.sequences
        if not each.feeds_sampled
    ]


@given(
    lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 8)), min_size=1, max_size=4),
    chunk=st.integers(1, 9),
    behind=st.integers(1, 5),
)
def test_no_item_is_cut(lengths: list[tuple[int, int]], chunk: int, behind: int) -> None:
    """`lengths` are tokens of text, and of the item behind it."""
    loop = make_loop(sees_whole_items=True, max_tokens_per_step=8, max_prefill_chunk=min(chunk, 8))
    spans, end = [], 0
    for number, (text, tokens) in enumerate(lengths):
        spans.append(span(f"item {number}", end + text, tokens))
        end += text + tokens
        loop.scheduler.encode(number, item(f"item {number}").features)
    request = generate("a", tuple(1 + token % 9 for token in range(end + behind)), media=tuple(spans))
    loop.submit(request, None, tuple(range(len(spans))))
    loop.run()
    expect_answer(loop, request)
    steps = fed(loop)
    assert (steps[0][0], steps[-1][1]) == (0, end + behind)
    assert all(before[1] == after[0] for before, after in pairwise(steps))
    for each in spans:
        holds = [step for step in steps if step[0] < each.start + each.num_tokens and step[1] > each.start]
        assert len(holds) == 1, f"{each} is fed in {steps}"
    expect_all_free(loop)


def test_an_item_that_no_step_holds_is_refused_with_the_numbers() -> None:
    loop = make_loop(sees_whole_items=True, max_tokens_per_step=8)
    loop.scheduler.encode(0, item("A").features)
    request = generate("a", (1,) * 12, media=(span("A", 2, 9),))
    with pytest.raises(BadRequestError, match=r"an item of the prompt has 9 tokens, .* a step has 8"):
        loop.submit(request, None, (0,))
    assert RequestId("a") not in loop.ends


@given(
    lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 8)), max_size=3),
    chunk=st.integers(1, 9),
    behind=st.integers(1, 5),
)
def test_no_prompt_is_cut(lengths: list[tuple[int, int]], chunk: int, behind: int) -> None:
    """`lengths` are tokens of text, and of the item behind it."""
    loop = make_loop(sees_whole_prompts=True, max_tokens_per_step=56, max_prefill_chunk=chunk)
    spans, end = [], 0
    for number, (text, tokens) in enumerate(lengths):
        spans.append(span(f"item {number}", end + text, tokens))
        end += text + tokens
        loop.scheduler.encode(number, item(f"item {number}").features)
    prompt = tuple(1 + token % 9 for token in range(end + behind))
    for name in ("a", "b"):  # the second finds blocks of the first, and feeds the rest in one step
        request = generate(name, prompt, media=tuple(spans))
        loop.submit(request, None, tuple(range(len(spans))))
        loop.run()
        expect_answer(loop, request)
    assert len(fed(loop)) == 2
    assert [end for _, end in fed(loop)] == [len(prompt)] * 2
    expect_all_free(loop)


def test_blocks_are_found_by_prompts_that_are_equal_as_a_whole() -> None:
    loop = make_loop(sees_whole_prompts=True)
    size = loop.scheduler.config.block_size
    prompt = tuple(1 + token % 9 for token in range(3 * size + 1))
    for name, ids in (("a", prompt), ("b", (*prompt, 1)), ("c", prompt)):
        request = generate(name, ids)
        loop.submit(request)
        loop.run()
        expect_answer(loop, request)
    assert [start for start, _ in fed(loop)] == [0, 0, 3 * size]


def test_a_prompt_that_no_step_holds_is_refused_with_the_numbers() -> None:
    loop = make_loop(sees_whole_prompts=True, max_tokens_per_step=8)
    with pytest.raises(BadRequestError, match=r"the prompt has 9 tokens, of which each .* a step has 8"):
        loop.submit(generate("a", (1,) * 9))
    assert RequestId("a") not in loop.ends
