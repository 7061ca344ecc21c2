"""Prefixes: computed once, found again, waited for by whoever comes while they are computed."""

from __future__ import annotations

import msgspec
import pytest
from sensorium.protocols.engine.messages import ProbabilityProbe, RequestId, SessionKey
from support.fake_runner import probability
from support.scheduler_dialogs import expect_all_free, expect_answer, generate, ids, make_loop

SHARED = tuple(range(1, 13))  # three blocks


def test_a_prefix_is_found_again_and_the_last_token_is_always_fed() -> None:
    loop = make_loop()
    for name, prompt, num_cached in (
        ("a", SHARED, 0),
        ("same", SHARED, 8),
        ("longer", (*SHARED, 20), 12),
        ("other", (*SHARED[:6], 21, 22), 4),
        ("foreign", (30, *SHARED), 0),
    ):
        request = generate(name, prompt)
        loop.submit(request)
        loop.run()
        expect_answer(loop, request)
        assert loop.first[RequestId(name)].num_cached == num_cached
    statistics = loop.scheduler.statistics()
    assert (statistics.num_prefix_queried, statistics.num_prefix_hits) == (12 + 12 + 13 + 8 + 13, 24)
    assert statistics.num_cached_blocks > 3
    expect_all_free(loop)


def test_each_turn_of_a_conversation_computes_only_what_is_new() -> None:
    loop = make_loop()
    prompt, num_cached = SHARED, 0
    for number in range(4):
        turn = generate(str(number), prompt, max_tokens=3)
        loop.submit(turn)
        loop.run()
        assert loop.first[turn.request_id].num_cached == num_cached
        expect_answer(loop, turn)
        num_cached = (len(prompt) + 2) // 4 * 4  # the last token of an answer is never fed
        prompt = (*prompt, *loop.tokens[turn.request_id], 5)


def test_without_caching_nothing_is_found() -> None:
    loop = make_loop(prefix_caching=False)
    for name in "ab":
        loop.submit(generate(name, SHARED))
        loop.run()
        assert loop.first[RequestId(name)].num_cached == 0
    assert loop.scheduler.statistics().num_cached_blocks == 0


def test_salts_keep_prefixes_apart() -> None:
    loop = make_loop()
    for name, value, num_cached in (("a", "x", 0), ("b", "y", 0), ("c", "x", 8), ("d", "", 0)):
        loop.submit(msgspec.structs.replace(generate(name, SHARED), cache_salt=value))
        loop.run()
        assert loop.first[RequestId(name)].num_cached == num_cached


def test_blocks_are_not_found_before_the_step_that_wrote_them_is_back() -> None:
    loop = make_loop()
    loop.submit(generate("a", SHARED, max_tokens=1))
    loop.plan()
    loop.scheduler.abort(RequestId("a"))
    loop.submit(generate("b", SHARED))
    loop.run()
    assert loop.first[RequestId("b")].num_cached == 0
    expect_answer(loop, generate("b", SHARED))


@pytest.mark.parametrize(("num_shared", "num_known"), [(12, 0), (12, 4), (4, 0)])
def test_a_burst_computes_a_shared_prefix_once_and_blocks_nobody(num_shared: int, num_known: int) -> None:
    loop = make_loop()
    loop.submit(generate("before", (*SHARED[:num_known], 30), max_tokens=1))
    loop.run()
    num_before = loop.scheduler.statistics().num_prefill_tokens
    requests = [generate(str(number), (*SHARED[:num_shared], 20 + number)) for number in range(5)]
    for request in requests:
        loop.submit(request)
    loop.submit(generate("stranger", (40, 41)))
    loop.run()
    assert ids(loop)[1] == ["0", "stranger"]
    assert ids(loop)[2] == ["0", "stranger", "1", "2", "3", "4"]
    num_fed = loop.scheduler.statistics().num_prefill_tokens - num_before
    assert num_fed == num_shared - num_known + 1 + 2 + 4
    for request in requests:
        expect_answer(loop, request)


@pytest.mark.parametrize("session", [None, SessionKey("s")])
def test_nobody_waits_for_a_prefix_that_is_computed_no_more(session: SessionKey | None) -> None:
    loop = make_loop(max_tokens_per_step=4)
    loop.submit(msgspec.structs.replace(generate("a", (*SHARED, 20)), session=session))
    loop.submit(generate("b", (*SHARED, 21)))
    loop.plan()
    assert ids(loop) == [["a"]]
    if session is not None:
        loop.finish()  # so that there is something to park
    loop.scheduler.abort(RequestId("a"))
    loop.plan()
    assert ids(loop)[-1] == ["b"]
    loop.run()
    expect_answer(loop, generate("b", (*SHARED, 21)))


def test_nobody_waits_for_who_was_preempted_over_it() -> None:
    """What a stay that was cut short was about to compute, nobody computes."""
    loop = make_loop(num_blocks=5, max_prefill_chunk=1)
    loop.submit(generate("a", (*SHARED, 20), max_tokens=2))
    loop.submit(generate("better", (5, 6, 7, 8), max_tokens=12, priority=-1))
    while not loop.scheduler.statistics().num_preemptions:
        loop.step()
    loop.scheduler.check()
    for name in ("better", "a"):
        loop.scheduler.abort(RequestId(name))
    again = generate("b", (*SHARED, 20), max_tokens=2)
    loop.submit(again)
    loop.plan()
    assert ids(loop)[-1] == ["b"]
    loop.run()
    expect_answer(loop, again)


@pytest.mark.parametrize("position", range(12))
def test_what_is_probed_is_fed_and_no_more_than_must_be(position: int) -> None:
    loop = make_loop()
    loop.submit(generate("a", (*SHARED, 20)))
    loop.run()
    probe = ProbabilityProbe(position, 2)
    loop.submit(generate("b", (*SHARED, 20), probe=probe))
    loop.run()
    first = loop.first[RequestId("b")]
    assert first.num_cached == position // 4 * 4
    assert first.probe_probability == probability(probe, SHARED)


def test_parked_blocks_that_are_found_are_not_counted_as_room() -> None:
    loop = make_loop(num_blocks=5, max_parked_blocks=5)
    loop.submit(msgspec.structs.replace(generate("a", SHARED[:8], max_tokens=1), session=SessionKey("s")))
    loop.run()
    holder = generate("holder", (30, 31, 32, 33, 34), max_tokens=4)
    loop.submit(holder)
    loop.plan()
    longer = generate("b", (*SHARED[:8], 20, 21, 22, 23, 24), max_tokens=2)
    loop.submit(longer)
    loop.plan()
    assert ids(loop)[-1] == ["holder"], "one block is free, two are wanted"
    loop.run()
    assert loop.first[RequestId("b")].num_cached == 8
    expect_answer(loop, longer)
    expect_answer(loop, holder)


def test_nobody_waits_for_a_worse_request() -> None:
    loop = make_loop(max_tokens_per_step=6)
    loop.submit(generate("slow", (*SHARED, 20)))
    loop.plan()
    loop.submit(generate("final", (*SHARED, 21), priority=-1))
    loop.plan()
    assert "final" in ids(loop)[1]
    loop.run()
    expect_answer(loop, generate("final", (*SHARED, 21)))
    expect_answer(loop, generate("slow", (*SHARED, 20)))


def test_a_preempted_request_finds_what_it_computed() -> None:
    loop = make_loop(num_blocks=8)
    requests = [generate(name, (number, *SHARED[:7]), max_tokens=14) for number, name in enumerate("ab")]
    for request in requests:
        loop.submit(request)
    loop.run()
    assert loop.scheduler.statistics().num_preemptions > 0
    assert loop.scheduler.statistics().num_prefix_hits > 0
    for request in requests:
        expect_answer(loop, request)
        assert loop.first[request.request_id].num_cached == 0, "what it computed itself does not count"
