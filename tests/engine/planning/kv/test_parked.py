"""Sessions: what a revised request takes over, what is parked, what is evicted; the answers never change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.planning.kv.parked import shared_length, shared_media
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import (
    ContentHash,
    MediaSpan,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    SessionKey,
)
from sensorium.protocols.errors import OverloadedError
from support.fake_runner import FakeRunner, answer_alone, item
from support.step_loop import StepLoop

PROMPT = (1, 2, 3, 4, 5, 6)


def make_loop(
    *,
    num_blocks: int = 64,
    max_parked_blocks: int | None = None,
    prefix_caching: bool = False,
    max_waiting: int = 8,
) -> StepLoop:
    config = SchedulerConfig(
        num_blocks=num_blocks,
        block_size=4,
        max_context=128,
        max_parked_blocks=max_parked_blocks,
        prefix_caching=prefix_caching,
        max_waiting=max_waiting,
    )
    return StepLoop(Scheduler(config), FakeRunner(num_blocks=num_blocks))


def generate(
    name: str,
    prompt: Sequence[int],
    *,
    session: str | None = "s",
    max_tokens: int = 6,
    media: tuple[MediaSpan, ...] = (),
    on: str | None = None,
    encoder_span: tuple[int, int] | None = None,
    salt: str = "",
) -> SampleRequest:
    return Request(
        RequestId(name),
        tuple(prompt),
        Sample(SamplingParams(max_tokens=max_tokens)),
        encoder_hash=None if on is None else ContentHash(on),
        encoder_span=encoder_span,
        media=media,
        session=None if session is None else SessionKey(session),
        cache_salt=salt,
    )


def expect_answer(loop: StepLoop, request: SampleRequest, *, num_cached: int) -> None:
    """It was given what it gets alone, and had KV of so many prompt tokens to begin with."""
    name = request.request_id
    assert (tuple(loop.tokens[name]), loop.ends[name].finish_reason) == answer_alone(request)
    assert loop.first[name].num_cached == num_cached


def run(loop: StepLoop, request: SampleRequest) -> tuple[int, ...]:
    loop.submit(request)
    loop.run()
    return tuple(loop.tokens[request.request_id])


def check(loop: StepLoop, request: SampleRequest, *, num_cached: int) -> None:
    run(loop, request)
    expect_answer(loop, request, num_cached=num_cached)


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_a_session_goes_on_from_what_its_last_request_computed(prefix_caching: bool) -> None:
    loop = make_loop(prefix_caching=prefix_caching)
    answer = run(loop, generate("a", PROMPT))
    assert loop.scheduler.statistics().num_sessions_parked == 1
    longer = generate("b", (*PROMPT, *answer, 7, 8))
    run(loop, longer)
    expect_answer(loop, longer, num_cached=11)  # the last token of an answer is never fed
    assert loop.scheduler.statistics().num_prefix_hits == 11


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("num_kept", range(1, 12))
def test_what_changed_is_computed_again(num_kept: int, prefix_caching: bool) -> None:
    loop = make_loop(prefix_caching=prefix_caching)
    answer = run(loop, generate("a", PROMPT))
    check(loop, generate("b", (*(*PROMPT, *answer)[:num_kept], 40, 41, 42)), num_cached=num_kept)
    original = generate("c", (*PROMPT, *answer), session=None)
    run(loop, original)
    num_found = 8 if num_kept % 4 == 0 else num_kept // 4 * 4  # a block that was written to is lost
    expect_answer(loop, original, num_cached=num_found if prefix_caching else 0)


def test_a_block_that_others_read_is_not_written_to() -> None:
    loop = make_loop(prefix_caching=True)
    run(loop, generate("a", (1, 2, 3, 4, 5, 6, 7, 8, 9)))
    reader = generate("reader", (1, 2, 3, 4, 5, 6, 7, 8, 10), session=None, max_tokens=30)
    loop.submit(reader)
    loop.plan()
    revised = generate("b", (1, 2, 3, 4, 5, 6, 11))
    loop.submit(revised)
    loop.run()
    expect_answer(loop, revised, num_cached=4)
    expect_answer(loop, reader, num_cached=8)


@pytest.mark.parametrize("num_plans", [0, 1, 2, 3])
def test_a_live_request_ends_when_it_is_revised(num_plans: int) -> None:
    loop = make_loop()
    loop.submit(generate("a", PROMPT))
    for _ in range(num_plans):
        loop.plan()
    if num_plans:
        loop.finish()
    revised = generate("b", (*PROMPT, 9))
    loop.submit(revised)
    assert loop.ends[RequestId("a")].finish_reason == "abort"
    loop.run(max_in_flight=2)
    expect_answer(loop, revised, num_cached=6 if num_plans else 0)


def test_who_is_revised_while_waiting_keeps_its_place() -> None:
    loop = make_loop(max_waiting=2)
    loop.submit(generate("a", PROMPT))
    loop.submit(generate("other", PROMPT, session=None))
    with pytest.raises(OverloadedError):
        loop.submit(generate("third", PROMPT, session=None))
    loop.submit(generate("b", (*PROMPT, 9)))
    first = loop.plan().sequences[0].begin
    assert first is not None
    assert first.request_id == "b"


def test_media_must_be_the_same_item_at_the_same_place() -> None:
    loop = make_loop()
    for slot, name in enumerate("ABA"):
        loop.scheduler.encode(slot, item(name).features)
    prompt = (1, 2, 9, 9, 9, 3)
    for number, (name, slot, cached) in enumerate([("A", 0, 0), ("B", 1, 2), ("B", 1, 5), ("A", 2, 2)]):
        media = (MediaSpan(ContentHash(name), 2, 3),)
        request = generate(str(number), prompt, media=media)
        loop.submit(request, None, (slot,))
        loop.run()
        expect_answer(loop, request, num_cached=cached)


def test_another_encoding_or_salt_takes_over_nothing() -> None:
    loop = make_loop()
    for slot, name in enumerate("AB"):
        loop.scheduler.encode(slot, item(name).features)
    cases = [(0, "A", "", None), (1, "B", "", None), (1, "B", "x", None), (1, "B", "x", (0, 9))]
    for number, (slot, name, salt, encoder_span) in enumerate(cases):
        request = generate(str(number), PROMPT, on=name, salt=salt, encoder_span=encoder_span)
        loop.submit(request, slot)
        loop.run()
        expect_answer(loop, request, num_cached=0)


@pytest.mark.parametrize(("num_blocks", "max_parked_blocks"), [(64, 7), (14, None)])
def test_the_longest_parked_is_evicted_beyond_the_budget(
    num_blocks: int, max_parked_blocks: int | None
) -> None:
    """That is half of all where nobody says."""
    loop = make_loop(num_blocks=num_blocks, max_parked_blocks=max_parked_blocks)
    for key in ("s", "t", "u"):
        run(loop, generate(key, PROMPT, session=key))  # eleven tokens: three blocks
    statistics = loop.scheduler.statistics()
    assert (statistics.num_sessions_parked, statistics.num_session_evictions) == (2, 1)
    for key, num_cached in (("u", 5), ("t", 5), ("s", 0)):
        check(loop, generate(f"{key} again", PROMPT, session=key), num_cached=num_cached)


def test_a_session_larger_than_the_budget_pushes_nobody_out() -> None:
    loop = make_loop(max_parked_blocks=4)
    run(loop, generate("a", PROMPT, session="s"))
    run(loop, generate("big", range(10, 28), session="t"))
    check(loop, generate("b", PROMPT, session="s"), num_cached=5)


def test_a_waiting_heir_keeps_its_inheritance_beyond_the_budget() -> None:
    loop = make_loop(max_parked_blocks=4)
    run(loop, generate("a", PROMPT, session="s"))
    loop.submit(generate("other", (20, 21), session="t", max_tokens=9))
    for _ in range(4):
        loop.step()
    heir = generate("b", PROMPT, session="s")
    loop.submit(heir)
    loop.scheduler.abort(RequestId("other"))
    assert loop.scheduler.statistics().num_session_evictions == 1, "three blocks and two are too many"
    loop.run()
    expect_answer(loop, heir, num_cached=5)


def test_a_failed_request_leaves_its_session_nothing() -> None:
    loop = make_loop()
    loop.submit(generate("a", PROMPT))
    loop.step()
    assert isinstance(loop.runner, FakeRunner)
    loop.runner.failing.add(RequestId("a"))
    loop.run()
    assert loop.ends[RequestId("a")].finish_reason == "error"
    check(loop, generate("b", PROMPT), num_cached=0)


def test_whoever_needs_blocks_gets_those_that_are_parked() -> None:
    loop = make_loop(num_blocks=6, max_parked_blocks=6)
    run(loop, generate("a", PROMPT))
    check(loop, generate("big", range(10, 31), session=None, max_tokens=4), num_cached=0)  # all there are
    statistics = loop.scheduler.statistics()
    assert (statistics.num_session_evictions, statistics.num_preemptions) == (1, 0)
    check(loop, generate("b", PROMPT), num_cached=0)


def test_an_evicted_session_finds_full_blocks_in_the_prefix_cache() -> None:
    loop = make_loop(max_parked_blocks=0, prefix_caching=True)
    answer = run(loop, generate("a", PROMPT))
    check(loop, generate("b", (*PROMPT, *answer)), num_cached=8)


def test_what_others_computed_further_counts_more_than_what_is_parked() -> None:
    loop = make_loop(prefix_caching=True)
    whole = tuple(range(1, 20))
    run(loop, generate("a", whole[:6], max_tokens=1))
    run(loop, generate("stranger", whole, session=None))
    check(loop, generate("b", whole), num_cached=16)
    run(loop, generate("c", whole[:9], session="t", max_tokens=1))
    check(loop, generate("d", whole[:10], session="t"), num_cached=9)
    loop.scheduler.check()


def test_closing_frees_and_a_live_request_goes_on_without_parking() -> None:
    loop = make_loop()
    run(loop, generate("a", PROMPT))
    live = generate("b", PROMPT)
    loop.submit(live)
    loop.plan()
    loop.scheduler.close_session(SessionKey("s"))
    loop.run()
    expect_answer(loop, live, num_cached=5)
    assert loop.scheduler.statistics().num_sessions_parked == 0
    run(loop, generate("c", PROMPT))
    loop.scheduler.close_session(SessionKey("s"))
    statistics = loop.scheduler.statistics()
    assert statistics.num_free_blocks == statistics.num_total_blocks
    assert (statistics.num_sessions_parked, statistics.num_session_evictions) == (0, 0)


def test_an_aborted_request_leaves_its_session_what_it_computed() -> None:
    loop = make_loop()
    loop.submit(generate("a", PROMPT))
    loop.step()
    loop.scheduler.abort(RequestId("a"))
    check(loop, generate("b", PROMPT), num_cached=5)


def test_a_probed_or_scored_prompt_is_fed_as_far_as_it_must() -> None:
    loop = make_loop()
    run(loop, generate("a", PROMPT))
    request = generate("b", PROMPT)
    scored = msgspec.structs.replace(
        request,
        task=msgspec.structs.replace(request.task, sampling=SamplingParams(max_tokens=6, prompt_logprobs=0)),
    )
    run(loop, scored)
    expect_answer(loop, scored, num_cached=0)
    assert loop.first[RequestId("b")].prompt_logprobs is not None


@given(st.lists(st.integers(0, 1), max_size=600), st.integers(0, 600), st.lists(st.integers(2, 3)))
def test_shared_length(tokens: list[int], cut: int, rest: list[int]) -> None:
    assert shared_length(tokens, [*tokens[:cut], *rest]) == min(len(tokens), cut)


def test_shared_media() -> None:
    first, second = MediaSpan(ContentHash("A"), 2, 3), MediaSpan(ContentHash("B"), 7, 3)
    moved = MediaSpan(ContentHash("A"), 1, 3)
    assert shared_media((first, second), (first, second)) is None
    assert shared_media((first, second), (first,)) == 7
    assert shared_media((first,), (first, second)) == 7
    assert shared_media((first,), (moved,)) == 1
    assert shared_media((), (second,)) == 7
