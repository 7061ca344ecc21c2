"""A beam search through a real engine: its answer is that of the pure machine, and it leaves nothing behind.

The runner is the fake one, whose tokens are a hash of what the KV blocks really hold: a beam that goes on
from another's blocks by mistake would say something else.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import trio
from sensorium.actors.inference.client import EngineClient, whole_answer
from sensorium.engine.planning.plan import Plan, StepResult
from sensorium.protocols.engine.messages import (
    ContentHash,
    Grammar,
    MediaSpan,
    NgramDraft,
    Phrases,
    ProbabilityProbe,
    SampleRequest,
    SessionKey,
    TextGenerated,
)
from sensorium.protocols.errors import BadRequestError, OverloadedError, UnavailableError
from support.beam_requests import STOPS, beams, expect_answer, searched
from support.fake_engine import (
    CONFIG,
    STEP_S,
    counted,
    expect_all_free,
    make_fake_engine,
    make_scheduler_config,
    request,
    run_whole,
)
from support.fake_runner import (
    CRASH_ID,
    NAN_ID,
    VOCAB_SIZE,
    FakeRunner,
    answer_alone,
    item,
    probability,
)
from trio.testing import MockClock


@pytest.mark.parametrize("num_beams", [2, 3, 5, 8])
async def test_the_answer_is_that_of_the_search(
    autojump_clock: MockClock, engine: EngineClient, num_beams: int
) -> None:
    """Answers that end by themselves and that are cut, from prompts of part of a block and of several."""
    reasons = set()
    for number, prompt in enumerate([(1, 2, 3), (4,), tuple(range(24, 35)), (5, 6, 9, 8), (20, 21)]):
        beam_request = beams(f"r{number}", num_beams, prompt=prompt, logprobs=0 if number % 2 else None)
        answer = await run_whole(engine, beam_request)
        expect_answer(answer, beam_request)
        reasons.add(answer.finish_reason)
    assert reasons == {"stop", "length"}


async def test_it_is_not_always_the_greedy_answer(autojump_clock: MockClock, engine: EngineClient) -> None:
    beam_request = beams("a")
    greedy = msgspec.structs.replace(beam_request.task.sampling, num_beams=1)
    alone, _ = answer_alone(
        msgspec.structs.replace(
            beam_request, task=msgspec.structs.replace(beam_request.task, sampling=greedy)
        )
    )
    assert (await run_whole(engine, beam_request)).token_ids != alone


async def test_two_beams_of_one_token_are_the_likeliest(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    beam_request = beams("a", 2, max_tokens=1, stop_token_ids=())
    answer = await run_whole(engine, beam_request)
    assert answer.token_ids == answer_alone(beam_request)[0]
    assert answer.finish_reason == "length"


async def test_rules_hold_for_every_beam(autojump_clock: MockClock, engine: EngineClient) -> None:
    """What may not begin an answer may go on with it; what may not be said is in no beam."""
    few = (3, 4, 5, STOPS[0])
    for beam_request in (
        beams("few", 5, allowed_token_ids=few),
        beams("one", 4, allowed_token_ids=(3,)),
        beams("never", suppress_token_ids=tuple(range(0, VOCAB_SIZE, 2))),
    ):
        expect_answer(await run_whole(engine, beam_request), beam_request)
    late = tuple(range(8, VOCAB_SIZE))
    beam_request = beams("begin", begin_suppress_token_ids=late, stop_token_ids=())
    answer = await run_whole(engine, beam_request)
    expect_answer(answer, beam_request)
    assert answer.token_ids[0] not in late
    assert set(late) & set(answer.token_ids)


async def test_what_is_listened_to_and_the_probe(autojump_clock: MockClock, engine: EngineClient) -> None:
    """Of an item beside the prompt and of items inside it; the probe is of the prompt."""
    probe = ProbabilityProbe(1, 9)
    probed = msgspec.structs.replace(
        beams("a"), task=msgspec.structs.replace(beams("a").task, probe=probe), encoder_hash=ContentHash("A")
    )
    spans = (MediaSpan(ContentHash("B"), 1, 3), MediaSpan(ContentHash("C"), 5, 3))
    inside = msgspec.structs.replace(beams("b", prompt=(1,) * 10), media=spans)
    async with engine.placed([item("A")]) as place:
        answer = await whole_answer(place, probed)
    assert answer.probe_probability == probability(probe, probed.prompt_token_ids)
    expect_answer(msgspec.structs.replace(answer, probe_probability=None), probed)
    async with engine.placed([item("B", 3), item("C", 3)]) as place:
        expect_answer(await whole_answer(place, inside), inside)


async def test_a_draft_changes_nothing(autojump_clock: MockClock, engine: EngineClient) -> None:
    beam_request = beams("a")
    drafted = msgspec.structs.replace(
        beam_request,
        task=msgspec.structs.replace(
            beam_request.task,
            draft_token_ids=searched(beam_request)[0].token_ids,
            rejoins_draft=True,
            ngram=NgramDraft(),
        ),
    )
    expect_answer(await run_whole(engine, drafted), beam_request)


class CountingRunner(FakeRunner):
    """Remembers how many sequences and rows each step had that computed something."""

    def __init__(self, *, num_blocks: int) -> None:
        super().__init__(num_blocks=num_blocks)
        self.steps: list[tuple[int, int]] = []

    def execute(self, plan: Plan) -> StepResult:
        """As it does, counted."""
        if plan.sequences:
            self.steps.append((len(plan.sequences), sum(step.num_rows for step in plan.sequences)))
        return super().execute(plan)


@pytest.mark.parametrize("num_plans", [1, 2])
async def test_all_beams_take_part_in_each_step_and_pay_for_what_is_new(
    autojump_clock: MockClock, nursery: trio.Nursery, num_plans: int
) -> None:
    """A prompt of 40 tokens is computed once, and a step of the device brings every beam a token."""
    config = make_scheduler_config(plans_in_flight=num_plans, num_blocks=200)
    runner = CountingRunner(num_blocks=config.num_blocks)
    engine = make_fake_engine(lambda: runner, config=config)
    await nursery.start(engine.run)
    beam_request = beams("a", 4, prompt=tuple(range(40)))
    _, num_parents = searched(beam_request)
    assert 1 < max(num_parents) < 4, "beams go on from their own, and several from one"
    await run_whole(engine, beam_request)
    assert [num_beams for num_beams, _ in runner.steps] == [1] + [4] * (len(num_parents) - 1)
    assert runner.steps[0][1] == 40
    later = zip(num_parents[1:], runner.steps[1:], strict=True)
    for length, (num, (_, num_rows)) in enumerate(later, 41):
        # One that goes on from each beam computes a token, the others what is in the last block.
        last = (length - 1) % config.block_size + 1
        assert num_rows <= num + (4 - num) * last


async def test_searches_side_by_side_and_among_strangers(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    """Of one prompt and of others, with more to hold than there are blocks."""
    prompt = tuple(range(20))
    beam_request = [beams("a", 3, prompt=prompt), beams("b", 2, prompt=prompt), beams("c", 2, prompt=(9, 8))]
    strangers = [request(f"s{number}", (number, 30), max_tokens=20) for number in range(3)]
    answers: dict[str, TextGenerated] = {}

    async def complete(each: SampleRequest) -> None:
        answers[each.request_id] = await run_whole(engine, each)

    async with trio.open_nursery() as nursery:
        for each in (*beam_request, *strangers):
            nursery.start_soon(complete, each)
    for each in beam_request:
        expect_answer(answers[each.request_id], each)
    for each in strangers:
        assert answers[each.request_id].token_ids == answer_alone(each)[0]


async def test_with_hardly_any_blocks(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """What sessions keep is given up, beams wait for each other: the answer is the same."""
    engine = make_fake_engine(config=make_scheduler_config(num_blocks=8, max_context=32))
    await nursery.start(engine.run)
    beam_request = beams("a", 8, prompt=tuple(range(20)), max_tokens=12)
    expect_answer(await run_whole(engine, beam_request), beam_request)
    await trio.sleep(2 * STEP_S)
    statistics = engine.statistics()
    assert (statistics.num_free_blocks, statistics.num_sessions_parked) == (8, 0)


@pytest.mark.parametrize("steps", [0, 0.5, 1, 1.5, 2, 2.5, 3.5, 5.5])
async def test_who_leaves_in_the_middle_leaves_nothing(
    autojump_clock: MockClock, engine: EngineClient, steps: float
) -> None:
    beam_request = msgspec.structs.replace(
        beams("a", 5, max_tokens=20, stop_token_ids=()), encoder_hash=ContentHash("A")
    )
    with trio.move_on_after(steps * STEP_S) as scope:
        async with engine.placed([item("A")]) as place:
            await whole_answer(place, beam_request)
    assert scope.cancelled_caught
    again = trio.current_time()
    await expect_all_free(engine)
    assert trio.current_time() - again <= 1.01 * STEP_S
    async with engine.placed([item("A")]) as place:
        expect_answer(await whole_answer(place, beam_request), beam_request)


async def test_who_leaves_without_time_passing_leaves_nothing(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    """At any of the places where it waits, and at once with the same id again."""
    beam_request = beams("a", 4)
    for number in range(40):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_whole, engine, beam_request)
            for _ in range(number):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    expect_answer(await run_whole(engine, beam_request), beam_request)
    await expect_all_free(engine)


async def test_a_beam_that_fails_fails_the_search_and_nothing_else(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    """One of the beams goes on with what makes its logits no numbers, the others would go on."""
    beam_request = beams("a", 3, allowed_token_ids=(3, 4, NAN_ID))
    answers: list[TextGenerated] = []

    async def complete_other() -> None:
        answers.append(await run_whole(engine, request("other", max_tokens=10)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(complete_other)
        failed = await run_whole(engine, beam_request)
        await expect_sessions_gone(engine)
    assert (failed.request_id, failed.finish_reason, failed.fault) == ("a", "error", "not_finite")
    assert failed.error == "the logits are not numbers"
    assert (failed.token_ids, failed.text) == ((), "")
    assert answers[0].token_ids == answer_alone(request("other", max_tokens=10))[0]


async def expect_sessions_gone(engine: EngineClient) -> None:
    """Though others go on."""
    await trio.sleep(STEP_S)
    assert (await counted(engine)).num_sessions_parked == 0


async def test_a_crash_in_the_middle_is_told_and_forgotten(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    with pytest.raises(UnavailableError):
        await run_whole(engine, beams("a", 3, allowed_token_ids=(3, 4, CRASH_ID)))
    await trio.sleep(2)
    beam_request = beams("a")
    expect_answer(await run_whole(engine, beam_request), beam_request)


async def test_it_waits_as_one_request_does(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Without room it is refused; once it is admitted, neither it nor others are because of its beams."""
    engine = make_fake_engine(config=replace(CONFIG, max_waiting=2, max_running=1))
    await nursery.start(engine.run)
    beam_request = beams("a", 4)
    answers: dict[str, TextGenerated] = {}

    async def complete(each: SampleRequest) -> None:
        answers[each.request_id] = await run_whole(engine, each)

    async with trio.open_nursery() as others:
        for number in range(3):
            others.start_soon(complete, request(f"s{number}", max_tokens=4))
            await trio.sleep(STEP_S / 4)
        with pytest.raises(OverloadedError):
            await run_whole(engine, beam_request)
    await expect_all_free(engine)
    async with trio.open_nursery() as others:
        others.start_soon(complete, beam_request)
        await trio.sleep(3.5 * STEP_S)
        for number in range(2):
            others.start_soon(complete, request(f"t{number}", max_tokens=4))
    expect_answer(answers["a"], beam_request)
    assert answers["t0"].token_ids == answers["t1"].token_ids == answer_alone(request("t", max_tokens=4))[0]
    await expect_all_free(engine)


@pytest.mark.parametrize(
    ("sampling", "name"),
    [
        ({"temperature": 0.5}, "a temperature"),
        ({"grammar": Grammar("json_object")}, "a grammar"),
        ({"stop": ("x",)}, "stop strings"),
        ({"presence_penalty": 0.5}, "penalties of the answer"),
        ({"frequency_penalty": -0.5}, "penalties of the answer"),
        ({"min_tokens": 1}, "min_tokens"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"prompt_logprobs": 0}, "log-probabilities of the prompt"),
        ({"phrases": Phrases(1, ((2,),), ((2,),), 1.0, 2.0)}, "phrases"),
    ],
)
async def test_what_beams_do_not_go_with_is_refused(
    autojump_clock: MockClock, engine: EngineClient, sampling: dict[str, object], name: str
) -> None:
    beam_request = beams("a")
    beam_request = msgspec.structs.replace(
        beam_request,
        task=msgspec.structs.replace(
            beam_request.task, sampling=msgspec.structs.replace(beam_request.task.sampling, **sampling)
        ),
    )
    with pytest.raises(BadRequestError, match=f"^3 beams cannot be combined with {name}$") as caught:
        await run_whole(engine, beam_request)
    assert caught.value.param == "num_beams"
    assert (await counted(engine)).num_steps == 0


async def test_a_session_is_refused_and_its_request_goes_on(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    async with engine.placed() as place, place.run(request("a", session="s")) as stream:
        with pytest.raises(BadRequestError, match="cannot be combined with a session") as caught:
            await run_whole(engine, msgspec.structs.replace(beams("b"), session=SessionKey("s")))
        assert caught.value.param == "num_beams"
        assert [part async for part in stream][-1].finish_reason == "length"
    engine.close_session(SessionKey("s"))


async def test_there_is_nothing_to_stream(autojump_clock: MockClock, engine: EngineClient) -> None:
    with pytest.raises(BadRequestError, match="comes at its end") as caught:
        async with engine.placed() as place, place.run(beams("a")) as stream:
            await anext(aiter(stream))
    assert caught.value.param == "num_beams"


async def test_what_can_never_run_is_refused_before_anything_runs(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    """As it is without beams: an answer that would not fit, none at all, a token that does not exist."""
    for beam_request in (
        beams("a", max_tokens=1000),
        beams("a", max_tokens=0),
        beams("a", prompt=()),
        beams("a", prompt=(1, VOCAB_SIZE)),
        msgspec.structs.replace(
            beams("a"), task=msgspec.structs.replace(beams("a").task, draft_token_ids=(VOCAB_SIZE,))
        ),
    ):
        alone = msgspec.structs.replace(beam_request.task.sampling, num_beams=1)
        with pytest.raises(BadRequestError) as expected:
            await run_whole(
                engine,
                msgspec.structs.replace(
                    beam_request, task=msgspec.structs.replace(beam_request.task, sampling=alone)
                ),
            )
        with pytest.raises(BadRequestError) as caught:
            await run_whole(engine, beam_request)
        assert str(caught.value) == str(expected.value)
        assert caught.value.param == expected.value.param
    assert (await counted(engine)).num_steps == 0


async def test_an_id_in_use_is_refused_and_whoever_has_it_goes_on(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    beam_request = beams("a", 3, stop_token_ids=())
    answers: list[TextGenerated] = []

    async def complete() -> None:
        answers.append(await run_whole(engine, beam_request))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(complete)
        await trio.sleep(2.5 * STEP_S)
        for other in (beam_request, request("a")):
            with pytest.raises(BadRequestError, match="'a' is in use"):
                await run_whole(engine, other)
    expect_answer(answers[0], beam_request)


async def test_parts_are_no_requests_of_their_own(autojump_clock: MockClock, engine: EngineClient) -> None:
    """Nobody waited for them: how long requests take and how large they are is told without them."""
    before = (await counted(engine)).times_interactive
    await run_whole(engine, beams("a"))
    with trio.move_on_after(1.5 * STEP_S):
        await run_whole(engine, beams("a"))
    times = (await counted(engine)).times_interactive
    assert times == before
    await run_whole(engine, request("b"))
    times = (await counted(engine)).times_interactive
    assert times.whole_s.count == times.queue_s.count == times.first_token_s.count == 1
    assert times.output_tokens.total == 6


async def test_longer_answers_may_be_favoured_and_a_search_end_sooner(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Both options change some answers, and each is that of the search with them."""
    engine = make_fake_engine()
    await nursery.start(engine.run)
    answers_by_option: list[list[tuple[int, ...]]] = []
    for length_penalty, patience in [(1.0, 1.0), (0.0, 1.0), (4.0, 1.0), (1.0, 0.5)]:
        answers_by_option.append([])
        for prompt in ((1, 2, 3), (4,), tuple(range(24, 35)), (5, 6, 9, 8), (20, 21)):
            beam_request = beams("r", 2, prompt=prompt, length_penalty=length_penalty, patience=patience)
            answer = await run_whole(engine, beam_request)
            expect_answer(answer, beam_request)
            answers_by_option[-1].append(answer.token_ids)
    usual, short, long, hasty = answers_by_option
    assert short != usual
    assert sum(map(len, short)) < sum(map(len, long))
    assert hasty != usual
    await expect_all_free(engine)
