"""The engine's promises to sessions: right text, one encode, prompt release, honest bounds, clear failure."""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import pytest
import trio
import trio.lowlevel
import trio.testing
from sensorium.actors.inference.client import EngineClient, outcome_of, whole_answer
from sensorium.actors.inference.detokenizer import STREAM_CAPACITY
from sensorium.protocols.engine.messages import (
    Align,
    ContentHash,
    Lane,
    MediaSpan,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    SessionKey,
    TextGenerated,
    TokensAligned,
)
from sensorium.protocols.errors import (
    BadRequestError,
    InternalError,
    OverloadedError,
    UnavailableError,
)
from sensorium.testing import InlineWorker
from support.fake_engine import (
    CONFIG,
    STEP_S,
    counted,
    expect_all_free,
    make_fake_engine,
    make_scheduler_config,
    request,
    run_task,
    run_whole,
)
from support.fake_runner import (
    INFO,
    NAN_ID,
    UNENCODABLE,
    VOCAB_SIZE,
    FakeRunner,
    answer_alone,
    decode,
    item,
)
from trio.testing import MockClock


def align(name: str, on: str, *, token_ids: tuple[int, ...] = (1, 2, 3, 4, 5)) -> Request[Align]:
    return Request(RequestId(name), token_ids, Align(2, 4, 10), encoder_hash=ContentHash(on))


async def test_complete_is_the_models_answer(autojump_clock: MockClock, engine: EngineClient) -> None:
    assert engine.health == "ready"
    assert engine.info == INFO
    async with engine.placed([item("A")]) as place:
        answer = await whole_answer(place, request("a", on="A"))
    tokens, reason = answer_alone(request("a"), b"A")
    assert answer == TextGenerated(RequestId("a"), tokens, finish_reason="length", text=decode(tokens))
    assert reason == "length"


async def test_text_comes_as_it_is_made(autojump_clock: MockClock, engine: EngineClient) -> None:
    times: list[float] = []
    async with engine.placed() as place, place.run(request("a")) as stream:
        async for part in stream:
            times.append(trio.current_time())
            assert len(part.token_ids) == 1
    gaps = [round(later - earlier, 6) for earlier, later in itertools.pairwise(times)]
    assert gaps == [STEP_S] * 5


async def test_one_encode_for_all_who_need_it_and_one_step_for_encode_and_prompt(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    answers: list[tuple[int, ...]] = []

    async def complete(name: str) -> None:
        async with engine.placed([item("A")]) as place:
            answers.append((await whole_answer(place, request(name, on="A"))).token_ids)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(complete, f"r{number}")
    assert answers == [answer_alone(request("a"), b"A")[0]] * 5
    statistics = await counted(engine)
    # One frame of features, which is less than one position: it counts as one.
    assert (statistics.num_windows_encoded, statistics.num_encoder_tokens) == (1, 1)
    assert (statistics.num_cache_misses, statistics.num_cache_hits) == (1, 4)
    assert (statistics.num_cache_entries, statistics.cache_bytes) == (1, 1000)


async def test_more_items_than_there_is_room_for_take_turns(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    done: list[str] = []

    async def complete(name: str) -> None:
        async with engine.placed([item(name)]) as place:
            answer = await whole_answer(place, request(name, on=name))
        assert answer.token_ids == answer_alone(request(name), name.encode())[0]
        done.append(name)

    async with trio.open_nursery() as nursery:
        for name in "ABCDEFG":
            nursery.start_soon(complete, name)
    assert sorted(done) == list("ABCDEFG")
    assert (await counted(engine)).num_cache_entries == 2


@pytest.mark.parametrize("steps", [0, 0.5, 1, 1.5, 3.5])
async def test_a_cancelled_caller_leaves_nothing_within_one_step(
    autojump_clock: MockClock, engine: EngineClient, steps: float
) -> None:
    async def complete() -> None:
        async with engine.placed([item("A")]) as place:
            await whole_answer(place, request("a", on="A", max_tokens=50))

    with trio.move_on_after(steps * STEP_S):
        await complete()
    await expect_all_free(engine)
    async with engine.placed([item("A")]) as place:
        again = await whole_answer(place, request("a", on="A"))
    assert again.token_ids == answer_alone(request("a"), b"A")[0]


async def test_one_who_waits_for_room_can_leave(autojump_clock: MockClock, engine: EngineClient) -> None:
    async with engine.placed([item("A")]):

        async def hold(name: str) -> None:
            async with engine.placed([item(name)]):
                await trio.sleep(1.0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold, "B")
            await trio.sleep(0.1)
            with trio.move_on_after(0.1) as scope:
                await hold("C")
            assert scope.cancelled_caught


async def test_an_id_can_be_used_again_at_once(autojump_clock: MockClock, engine: EngineClient) -> None:
    for prompt in ((1, 2), (3, 4), (5, 6)):
        async with engine.placed() as place, place.run(request("a", prompt, max_tokens=50)) as stream:
            first = await anext(aiter(stream))
        assert first.token_ids == answer_alone(request("a", prompt), None)[0][:1]
    assert (await run_whole(engine, request("a"))).token_ids == answer_alone(request("a"), None)[0]


async def test_ids_in_use_and_impossible_requests_are_refused_alone(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    async with engine.placed() as place, place.run(request("a")) as stream:
        with pytest.raises(BadRequestError, match="'a' is in use"):
            await run_whole(engine, request("a"))
        with pytest.raises(BadRequestError, match="128 tokens"):
            await run_whole(engine, request("b", max_tokens=1000))
        with pytest.raises(BadRequestError, match=f"vocabulary ends at {VOCAB_SIZE - 1}"):
            await run_whole(engine, request("c", (1, VOCAB_SIZE)))
        tokens = [token async for part in stream for token in part.token_ids]
    assert tuple(tokens) == answer_alone(request("a"), None)[0]


async def test_what_is_not_held_cannot_be_used(autojump_clock: MockClock, engine: EngineClient) -> None:
    with pytest.raises(UnavailableError, match="not held"):
        await run_whole(engine, request("a", on="A"))


async def test_live_requests_do_not_wait_for_a_batch_that_has_all_slots(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    engine = make_fake_engine(config=replace(CONFIG, max_running=4))
    await nursery.start(engine.run)
    batch = [
        msgspec.structs.replace(request(f"b{number}", (number, 2), max_tokens=20), lane=Lane("batch"))
        for number in range(6)
    ]
    answers: list[TextGenerated] = []

    async def complete(each: SampleRequest) -> None:
        answers.append(await run_whole(engine, each))

    async with trio.open_nursery() as others:
        for each in batch:
            others.start_soon(complete, each)
        await trio.sleep(5 * STEP_S)
        before = await counted(engine)
        assert (before.num_running_batch, before.num_waiting_batch) == (4, 2)
        for number in range(3):
            start = trio.current_time()
            async with engine.placed([item("A")], lane=Lane("live")) as place:
                await whole_answer(
                    place,
                    msgspec.structs.replace(request(f"l{number}", on="A", max_tokens=3), lane=Lane("live")),
                )
            assert trio.current_time() - start <= 4.01 * STEP_S, "the step in flight, then its own three"
        assert (await counted(engine)).num_preemptions_batch == 1
    assert {answer.request_id: answer.token_ids for answer in answers} == {
        each.request_id: answer_alone(each)[0] for each in batch
    }


async def test_too_many_waiting_is_overload(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    engine = make_fake_engine(config=replace(CONFIG, max_running=1, max_waiting=2))
    await nursery.start(engine.run)
    refused: list[str] = []

    async def complete(name: str) -> None:
        try:
            await run_whole(engine, request(name))
        except OverloadedError as error:
            refused.append(error.message)

    async with trio.open_nursery() as askers:
        for number in range(5):
            askers.start_soon(complete, f"r{number}")
    assert refused
    assert set(refused) == {"2 requests are waiting for the engine"}


async def test_failures_of_one_request_stay_with_it(autojump_clock: MockClock, engine: EngineClient) -> None:
    answers: dict[str, TextGenerated] = {}

    async def complete(name: str, prompt: tuple[int, ...], on: str) -> None:
        async with engine.placed([item(on)]) as place:
            answers[name] = await whole_answer(place, request(name, prompt, on=on))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(complete, "nan", (1, NAN_ID), "A")
        nursery.start_soon(complete, "bad", (1, 2), UNENCODABLE.decode())
        nursery.start_soon(complete, "good", (1, 2, 3), "A")
    nan, bad = answers["nan"], answers["bad"]
    assert (nan.finish_reason, nan.fault, nan.error) == ("error", "not_finite", "the logits are not numbers")
    assert (bad.finish_reason, bad.fault) == ("error", "not_encoded")
    assert bad.error == "these features cannot be encoded"
    assert answers["good"].token_ids == answer_alone(request("a"), b"A")[0]
    assert engine.health == "ready"


async def test_alignments(autojump_clock: MockClock, engine: EngineClient) -> None:
    async with engine.placed([item("A")]) as place:
        first = b"A"[0] % 10
        aligned = await outcome_of(place, align("x", "A"), TokensAligned)
        assert aligned.boundaries == (first, first + 1, first + 2)
        with pytest.raises(InternalError, match="no path"):
            await outcome_of(place, align("y", "A", token_ids=(1, 2, 3, NAN_ID, 5)), TokensAligned)
        with pytest.raises(BadRequestError, match="not inside"):
            await run_task(engine, align("z", "A", token_ids=(1, 2, 3)))
        with trio.move_on_after(STEP_S / 2):
            await run_task(engine, align("w", "A"))
    await trio.sleep(3 * STEP_S)


async def test_a_reader_too_far_behind_loses_its_own_request(nursery: trio.Nursery) -> None:
    config = make_scheduler_config(num_blocks=1000, max_context=3000)

    class Talkative(FakeRunner):
        info = replace(INFO, max_context=3000)

    engine = make_fake_engine(
        lambda: Talkative(num_blocks=1000), config=config, make_worker=lambda: InlineWorker(0)
    )
    await nursery.start(engine.run)
    async with (
        engine.placed() as place,
        place.run(request("slow", max_tokens=STREAM_CAPACITY + 50)) as stream,
    ):
        while not stream.is_finished:
            await trio.lowlevel.checkpoint()
        for _ in range(5):
            await trio.testing.wait_all_tasks_blocked()
        assert (await counted(engine)).num_running == 0
        parts = [part async for part in stream]
    assert len(parts) == STREAM_CAPACITY + 1
    assert (parts[-1].finish_reason, parts[-1].text, parts[-1].fault) == ("error", "", "slow_reader")
    assert "1024 messages behind" in (parts[-1].error or "")
    assert (await run_whole(engine, request("next"))).finish_reason == "length"


def on_media(name: str, *media: tuple[str, int], num_tokens: int = 3, max_tokens: int = 6) -> SampleRequest:
    """A request whose prompt holds items of `num_tokens` each from given places on."""
    end = max((start + num_tokens for _, start in media), default=0) + 2
    spans = tuple(MediaSpan(ContentHash(item), start, num_tokens) for item, start in media)
    return Request(RequestId(name), (1,) * end, Sample(SamplingParams(max_tokens=max_tokens)), media=spans)


async def test_items_in_the_prompt_are_acquired_at_once_and_encoded_once(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    answers: dict[str, tuple[int, ...]] = {}

    async def complete(name: str, first: str, second: str) -> None:
        items = (item(first, 3), item(second, 3))
        generate = on_media(name, (first, 1), (second, 5))
        async with engine.placed(items) as place:
            answers[name] = (await whole_answer(place, generate)).token_ids
        assert answers[name] == answer_alone(generate)[0]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(complete, "ab", "A", "B")
        nursery.start_soon(complete, "ba", "B", "A")
        nursery.start_soon(complete, "cd", "C", "D")
    assert len(answers) == 3
    assert (await counted(engine)).num_windows_encoded == 4


async def test_no_items_need_no_encoder(autojump_clock: MockClock, engine: EngineClient) -> None:
    async with engine.placed() as place:
        assert (await whole_answer(place, request("a"))).finish_reason == "length"


async def test_media_larger_than_the_cache_are_refused_with_the_numbers(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    with pytest.raises(BadRequestError, match="take 3000 bytes encoded; the encoder cache has 2000"):
        async with engine.placed([item("A"), item("B"), item("C")]):
            raise AssertionError("there is no room")
    assert engine.health == "ready"


async def test_what_nobody_asks_about_is_not_encoded(autojump_clock: MockClock, engine: EngineClient) -> None:
    async with engine.placed([item("A")]):
        await trio.sleep(10 * STEP_S)
    await trio.sleep(2 * STEP_S)
    statistics = await counted(engine)
    assert (statistics.num_windows_encoded, statistics.num_cache_entries) == (0, 0)


async def test_a_stop_string_ends_the_request_everywhere(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    tokens, _ = answer_alone(request("a", max_tokens=20))
    text = decode(tokens)
    stop = text[7:10]
    generate = request("a", max_tokens=20, stop=stop)
    whole = await run_whole(engine, generate)
    assert (whole.text, whole.finish_reason, whole.stop) == (text[: text.index(stop)], "stop", stop)
    assert whole.token_ids == tokens[: len(whole.text)]
    await trio.sleep(2 * STEP_S)
    assert (await counted(engine)).num_running == 0
    async with engine.placed() as place, place.run(generate) as stream:
        parts = [part async for part in stream]
    assert "".join(part.text for part in parts) == whole.text
    assert parts[-1].stop == stop
    with pytest.raises(BadRequestError, match="a stop string is empty"):
        await run_whole(engine, request("a", stop=""))


async def test_a_session_hands_on_what_it_computed_until_it_is_closed(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    async def hits() -> int:
        return (await counted(engine)).num_prefix_hits

    prompt = tuple(range(1, 7))
    first = await run_whole(engine, request("a", prompt, session="s", max_tokens=5))
    before = await hits()
    longer = request("b", prompt + first.token_ids + (9,), session="s", max_tokens=5)
    assert (await run_whole(engine, longer)).token_ids == answer_alone(longer)[0]
    assert await hits() - before >= 10
    await trio.sleep(2 * STEP_S)
    assert (await counted(engine)).num_sessions_parked == 1
    engine.close_session(SessionKey("s"))
    engine.close_session(SessionKey("never heard of"))
    await trio.sleep(STEP_S)
    assert (await counted(engine)).num_sessions_parked == 0


async def test_a_revision_ends_the_request_it_revises(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    async with engine.placed() as place, place.run(request("a", session="s", max_tokens=50)) as old:
        await anext(aiter(old))
        new = await run_whole(engine, request("b", (1, 2, 4), session="s"))
        ended = [part async for part in old]
    assert new.token_ids == answer_alone(request("b", (1, 2, 4)))[0]
    assert ended[-1].finish_reason == "abort"
    engine.close_session(SessionKey("s"))
