"""What goes into each plan, and what comes of it: dialogs with a runner that reads real blocks and slots."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sensorium.protocols.engine.messages import NgramDraft, ProbabilityProbe, RequestId, SampleRequest
from sensorium.protocols.errors import BadRequestError, InternalError, OverloadedError
from support.fake_runner import NAN_ID, FakeRunner, answer_alone, item, probability
from support.scheduler_dialogs import align, expect_all_free, expect_answer, generate, ids, make_loop, span


def test_prompt_first_then_one_token_a_step_that_the_runner_knows() -> None:
    loop = make_loop()
    loop.submit(generate("a"))
    loop.run()
    steps = [plan.sequences[0] for plan in loop.steps]
    assert [step.start for step in steps] == [0, 3, 4, 5, 6, 7]
    assert [step.token_ids for step in steps] == [(1, 2, 3)] + [()] * 5
    assert [step.feeds_sampled for step in steps] == [False] + [True] * 5
    assert [step.begin is not None for step in steps] == [True] + [False] * 5
    assert loop.plans[-1].ends == (steps[0].sequence_id,)
    expect_answer(loop, generate("a"))
    statistics = loop.scheduler.statistics()
    assert (statistics.num_prefill_tokens, statistics.num_decode_tokens) == (3, 5)
    expect_all_free(loop)


def test_requests_join_a_running_batch() -> None:
    loop = make_loop()
    loop.submit(generate("a"))
    loop.step()
    loop.submit(generate("b", (4, 5)))
    loop.run()
    assert ids(loop)[:2] == [["a"], ["a", "b"]]
    expect_answer(loop, generate("b", (4, 5)))


def test_the_next_step_is_planned_before_the_last_is_known() -> None:
    loop = make_loop()
    loop.submit(generate("a", max_tokens=3))
    plans = [loop.plan() for _ in range(4)]
    assert [plan.sequences[0].start for plan in plans[:3]] == [0, 3, 4]
    assert not plans[3], "its three tokens are on their way"
    loop.run()
    expect_answer(loop, generate("a", max_tokens=3))


def test_a_stop_token_makes_what_is_in_flight_void() -> None:
    tokens, _ = answer_alone(generate("a", max_tokens=20))
    request = generate("a", max_tokens=20, stop=(tokens[2],))
    loop = make_loop()
    loop.submit(request)
    for _ in range(5):
        loop.plan()
    loop.run()
    assert loop.ends[RequestId("a")].finish_reason == "stop"
    expect_answer(loop, request)
    expect_all_free(loop)


def test_a_right_draft_costs_one_step() -> None:
    tokens, _ = answer_alone(generate("a", max_tokens=20))
    loop = make_loop()
    loop.submit(generate("a", max_tokens=20, draft=tokens))
    loop.plan()
    assert not loop.plan(), "what follows a draft depends on what was right"
    loop.run()
    assert len(loop.steps) == 1
    assert tuple(loop.tokens[RequestId("a")]) == tokens
    statistics = loop.scheduler.statistics()
    assert (statistics.num_draft_tokens, statistics.num_draft_accepted) == (19, 19)


def test_the_rest_of_a_draft_cut_by_the_budget_is_verified_later() -> None:
    tokens, _ = answer_alone(generate("a", max_tokens=20))
    loop = make_loop(max_tokens_per_step=8)
    loop.submit(generate("a", max_tokens=20, draft=tokens))
    loop.run()
    assert tuple(loop.tokens[RequestId("a")]) == tokens
    assert [plan.sequences[0].num_rows for plan in loop.steps] == [8, 8, 6]


def test_a_wrong_draft_is_dropped_and_decoding_runs_ahead_again() -> None:
    loop = make_loop()
    request = generate("a", max_tokens=8, draft=(48, 48, 48))
    loop.submit(request)
    loop.step()
    assert [loop.plan().sequences[0].start for _ in range(3)] == [3, 4, 5]
    loop.run()
    expect_answer(loop, request)


def test_prompt_lookup_drafts_what_repeats() -> None:
    tokens, _ = answer_alone(generate("a", max_tokens=12))
    prompt = (1, 2, 3, *tokens[:4], 1, 2, 3)
    loop = make_loop()
    request = generate("b", prompt, ngram=NgramDraft(num_tokens=3, max_match=3, min_match=2))
    loop.submit(request)
    loop.run()
    assert loop.steps[0].sequences[0].token_ids == (*prompt, *tokens[:3])
    expect_answer(loop, request)


def test_a_draft_never_preempts_anyone() -> None:
    loop = make_loop(num_blocks=4)
    loop.submit(generate("a", (1, 2, 3, 4)))
    loop.step()
    request = generate("b", draft=(9,) * 5, max_tokens=12)
    loop.submit(request)
    loop.plan()
    assert loop.plans[-1].sequences[1].num_draft == 5
    assert loop.scheduler.statistics().num_free_blocks == 0
    loop.run()
    expect_answer(loop, request)


def test_what_a_draft_had_is_free_when_it_is_rejected() -> None:
    loop = make_loop(num_blocks=16, max_running=8)
    request = generate("a", max_tokens=40, draft=(39,) * 39)
    loop.submit(request)
    assert loop.plan().sequences[0].num_draft == 39
    loop.finish()
    assert loop.scheduler.statistics().num_free_blocks == 15
    for number in range(3):
        loop.submit(generate(f"b{number}", (5, 6, 7, number), max_tokens=12, priority=1))
    loop.run()
    expect_answer(loop, request)
    assert loop.scheduler.statistics().num_preemptions == 0
    expect_all_free(loop)


def test_a_draft_leaves_blocks_to_all_that_run() -> None:
    """Worse ones included, which are fed behind it."""
    answer, _ = answer_alone(generate("a", max_tokens=20))
    loop = make_loop(num_blocks=4, max_tokens_per_step=12)
    loop.submit(generate("a", max_tokens=9, draft=answer))
    loop.submit(generate("b", (1, 2, 3, 4), max_tokens=5, service="batch"))
    loop.step()
    first, second = loop.plan().sequences
    assert (first.start, first.num_draft, len(first.block_table)) == (6, 1, 2), "as far as its blocks go"
    assert (second.start, len(second.block_table)) == (4, 2)


def test_the_token_budget_holds_and_serves_the_best_first() -> None:
    loop = make_loop(max_tokens_per_step=4)
    for number, (name, priority) in enumerate([("low", 1), ("first", 0), ("second", 0), ("final", -1)]):
        loop.submit(generate(name, (number, 2, 3), priority=priority))
    loop.run()
    assert all(sum(each.num_rows for each in plan.sequences) <= 4 for plan in loop.plans)
    assert list(loop.ends) == ["final", "first", "second", "low"]


def test_long_prompts_are_fed_in_chunks_and_sample_once_whole() -> None:
    prompt = tuple(range(1, 11))
    probe = ProbabilityProbe(position=5, token_id=2)
    loop = make_loop(max_tokens_per_step=4)
    request = generate("a", prompt, probe=probe, prompt_logprobs=0)
    loop.submit(request)
    loop.plan()
    loop.plan()
    loop.run()
    assert [plan.sequences[0].answers for plan in loop.steps[:3]] == [False, False, True]
    assert loop.probabilities == {"a": probability(probe, prompt)}
    logprobs = loop.first[RequestId("a")].prompt_logprobs
    assert logprobs is not None
    assert logprobs.logprobs == tuple(-float(token) for token in prompt[1:])
    expect_answer(loop, request)


def test_a_long_prompt_leaves_room_for_those_behind_it() -> None:
    loop = make_loop(max_tokens_per_step=32)
    loop.submit(generate("long", tuple(range(1, 45)) * 2))
    loop.submit(generate("short", (46, 2, 3)))
    first = loop.plan()
    assert [step.num_rows for step in first.sequences] == [16, 3]
    loop.finish()
    second = loop.plan()
    assert [step.num_rows for step in second.sequences] == [1, 31], "decoding first, then all that is left"
    loop.run()
    expect_answer(loop, generate("long", tuple(range(1, 45)) * 2))


def test_long_prompts_are_read_side_by_side() -> None:
    loop = make_loop(max_tokens_per_step=32)
    for first in (1, 2):
        loop.submit(generate(f"{first}", tuple(range(first, 40)) * 2))
    for _ in range(3):
        loop.step()
    assert [[step.num_rows for step in plan.sequences] for plan in loop.steps] == [[16, 16]] * 3


def test_a_prompt_chunk_can_be_bounded() -> None:
    loop = make_loop(max_prefill_chunk=5)
    loop.submit(generate("a", tuple(range(12))))
    loop.run()
    assert [plan.sequences[0].num_rows for plan in loop.steps[:3]] == [5, 5, 2]


@pytest.mark.parametrize("max_in_flight", [1, 2, 3])
def test_out_of_blocks_the_worst_is_preempted_and_recomputed(max_in_flight: int) -> None:
    loop = make_loop(num_blocks=6, prefix_caching=False)
    requests = [generate(name, (number, 2, 3), max_tokens=16) for number, name in enumerate("abc")]
    for request in requests:
        loop.submit(request)
    loop.run(max_in_flight=max_in_flight)
    for request in requests:
        expect_answer(loop, request)
    assert list(loop.ends) == ["a", "b", "c"]
    assert loop.scheduler.statistics().num_preemptions > 0
    begins = [step for plan in loop.steps for step in plan.sequences if step.begin is not None]
    again = [(step, step.begin.generated) for step in begins if step.begin and step.begin.generated]
    assert again, "the generated tokens are fed again in one chunk"
    assert all(len(step.token_ids) == 3 + len(generated) for step, generated in again)
    assert isinstance(loop.runner, FakeRunner)
    assert loop.runner.num_sequences == 0, "the runner forgets the stays that were cut short as well"
    expect_all_free(loop)


@pytest.mark.parametrize("max_in_flight", [1, 2])
@pytest.mark.parametrize("scored", [True, False])
def test_who_is_preempted_inside_its_prompt_is_told_of_it_once(max_in_flight: int, scored: bool) -> None:
    loop = make_loop(num_blocks=5, max_prefill_chunk=1)
    prompt = tuple(range(1, 13))
    request = generate("a", prompt, max_tokens=2, prompt_logprobs=0 if scored else None)
    better = generate("better", (5, 6, 7, 8), max_tokens=12, priority=-1)
    loop.submit(request)
    loop.submit(better)
    loop.run(max_in_flight=max_in_flight)
    first, second = (
        step.sequence_id
        for plan in loop.steps
        for step in plan.sequences
        if step.begin is not None and step.begin.request_id == "a"
    )
    cut = [step for plan in loop.steps for step in plan.sequences if step.sequence_id == first]
    assert 0 < sum(step.num_rows for step in cut) < len(prompt)
    assert any(first in plan.ends for plan in loop.plans)
    assert any(second in plan.ends for plan in loop.plans)
    expect_answer(loop, request)
    expect_answer(loop, better)
    assert loop.first[RequestId("a")].num_cached == 0, "what it computed itself does not count"
    logprobs = loop.first[RequestId("a")].prompt_logprobs
    assert (None if logprobs is None else logprobs.logprobs) == (
        tuple(-float(token) for token in prompt[1:]) if scored else None
    )


def with_draft(request: SampleRequest, draft: tuple[int, ...]) -> SampleRequest:
    """The same with a guess at its answer."""
    return replace(request, task=replace(request.task, draft_token_ids=draft))


def test_drafts_leave_everyone_a_token() -> None:
    loop = make_loop(max_tokens_per_step=8)
    requests = [generate(name, (number, 9), max_tokens=30) for number, name in enumerate("abc")]
    for request in requests:
        answer = answer_alone(request)[0]
        loop.submit(with_draft(request, answer))
    for _ in range(5):
        loop.step()
    assert all(len(plan.sequences) == 3 for plan in loop.steps[2:]), ids(loop)
    loop.run()
    for request in requests:
        expect_answer(loop, request)


def test_a_draft_leaves_half_of_a_step_to_who_waits_and_a_token_to_who_reads() -> None:
    loop = make_loop(max_tokens_per_step=8)
    request = generate("a", max_tokens=40)
    loop.submit(with_draft(request, answer_alone(request)[0]))
    loop.step()
    loop.submit(generate("b", tuple(range(1, 11))))
    for num_rows in ([4, 4], [7, 1]):
        loop.step()
        assert [step.num_rows for step in loop.steps[-1].sequences] == num_rows
    loop.run()
    expect_answer(loop, request)
    expect_answer(loop, generate("b", tuple(range(1, 11))))


def test_what_was_in_flight_before_a_preemption_is_not_taken_for_what_is_after() -> None:
    loop = make_loop(num_blocks=5, prefix_caching=False)
    requests = [generate("a", (1, 2, 3, 4), max_tokens=10), generate("b", (5, 6, 7, 8), max_tokens=9)]
    for request in requests:
        loop.submit(request)
    while not loop.scheduler.statistics().num_preemptions:
        loop.plan()
    assert len(loop.in_flight) > 2
    loop.scheduler.abort(RequestId("a"))
    loop.plan()
    assert len(ids(loop)[-1]) == 1, "b is on the device again, and its first stay's results are outstanding"
    loop.run()
    expect_answer(loop, requests[1])


@pytest.mark.parametrize("when", ["waiting", "in flight", "running"])
def test_abort_frees_at_once_and_late_results_are_ignored(when: str) -> None:
    loop = make_loop()
    request_id = RequestId("a")
    loop.submit(generate("a"))
    if when != "waiting":
        loop.plan()
    if when == "running":
        loop.finish()
    assert loop.scheduler.abort(request_id)
    expect_all_free(loop)
    assert not loop.scheduler.abort(request_id)
    given = len(loop.tokens.get(request_id, []))
    loop.run()
    assert len(loop.tokens.get(request_id, [])) == given
    assert request_id not in loop.ends


def test_an_id_can_be_used_again_while_the_old_result_is_outstanding() -> None:
    loop = make_loop()
    loop.submit(generate("a", (1, 2)))
    loop.plan()
    loop.scheduler.abort(RequestId("a"))
    again = generate("a", (9, 8, 7))
    loop.submit(again)
    loop.plan()
    loop.run()
    expect_answer(loop, again)


def test_nan_fails_one_sequence_and_its_blocks_are_never_found() -> None:
    loop = make_loop()
    bad = (1, 2, 3, 4, 5, 6, 7, NAN_ID, 9)
    for name in ("bad", "bad again"):
        loop.submit(generate(name, bad))
        loop.submit(generate(f"good beside {name}"))
        loop.run()
        assert loop.ends[RequestId(name)].error == "the logits are not numbers"
        assert loop.first[RequestId(name)].num_cached == 0
        assert loop.ends[RequestId(f"good beside {name}")].finish_reason == "length"
    expect_all_free(loop)


def test_a_refused_request_leaves_the_engine_to_the_next() -> None:
    loop = make_loop(num_blocks=10)
    with pytest.raises(BadRequestError, match="need 11 blocks of 4 tokens, the engine has 10"):
        loop.submit(generate("a", (1,) * 30, max_tokens=12))
    loop.submit(generate("a", (1,) * 30, max_tokens=11))
    loop.run()
    assert loop.ends[RequestId("a")].finish_reason == "length"


def test_slots_that_do_not_belong_to_the_request_are_our_own_fault() -> None:
    loop = make_loop()
    loop.scheduler.encode(0, item("A").features)
    for request, slot, media_slots in (
        (generate("a"), 0, ()),
        (generate("a", on="A"), None, ()),
        (generate("a", media=(span("A", 0, 2),)), None, ()),
    ):
        with pytest.raises(InternalError, match="not those of its items"):
            loop.submit(request, slot, media_slots)
    with pytest.raises(InternalError, match="slot 5 is empty"):
        loop.scheduler.submit(align("x"), 5)


def test_queues_are_bounded_and_ids_unique() -> None:
    loop = make_loop(max_waiting=2)
    loop.submit(generate("a"))
    with pytest.raises(BadRequestError, match="'a' is in use"):
        loop.submit(generate("a"))
    loop.submit(generate("b"))
    with pytest.raises(OverloadedError, match="2 requests are waiting"):
        loop.submit(generate("c"))
    loop.run()
    loop.submit(generate("c"))


def test_max_running_bounds_the_batch() -> None:
    loop = make_loop(max_running=2)
    for name in "abcd":
        loop.submit(generate(name))
    loop.run()
    assert max(len(names) for names in ids(loop)) == 2
    assert len(loop.ends) == 4
