"""A model's answers with phrases are those of a slow loop, which computes all of it for each token."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import trio
from sensorium.actors.inference.keyword_boosting import MAX_RETURNS
from sensorium.protocols.engine.messages import (
    FinishReason,
    Grammar,
    NgramDraft,
    Phrases,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
)
from sensorium.protocols.errors import BadRequestError
from support.fake_engine import CONFIG, expect_all_free, make_fake_engine, run_whole
from support.fake_runner import decode
from support.slow_phrases import belongs, bonuses
from support.toy_model import ToyModel
from support.toy_runner import greedy
from support.toy_runner import make as make_toy_runner
from trio.testing import MockClock

MARK = 31
Ids = tuple[int, ...]
VOCAB = 32


def found_slowly(model: ToyModel, request: SampleRequest) -> tuple[Ids, FinishReason, int]:
    """The answer, why it ended, and how often something was taken back."""
    phrases, prompt = request.task.sampling.phrases, request.prompt_token_ids
    assert phrases is not None
    answer: list[int] = []
    lifted: list[int] = []
    plain, num_returns, is_over = -1, 0, False
    reason: FinishReason = "length"
    while not is_over and len(answer) < request.task.sampling.max_tokens:
        tokens = prompt + tuple(answer)
        logits = model.dense_logits(tokens)[-1]
        natural = int(logits.argmax())
        if len(answer) > plain and num_returns < MAX_RETURNS:
            for token, bonus in bonuses(phrases, tokens).items():
                logits[token] += bonus
        token = int(logits.argmax())
        is_over = token in request.task.sampling.stop_token_ids
        if is_over:
            reason = "stop"
        else:
            answer.append(token)
            if token != natural:
                lifted.append(len(answer) - 1)
        tokens = prompt + tuple(answer)
        for at in lifted:
            is_of_one = belongs(phrases, tokens, len(prompt) + at)
            if is_of_one is False or (is_over and not is_of_one):
                del answer[at:]
                lifted = [each for each in lifted if each < at]
                plain, num_returns, is_over, reason = at, num_returns + 1, False, "length"
                break
    return tuple(answer), reason, num_returns


def make_model() -> ToyModel:
    """One that does not say the mark."""
    model = ToyModel(vocab_size=VOCAB)
    model.head[MARK] = 0.0
    return model


def make_request(model: ToyModel, number: int) -> SampleRequest:
    """A request whose phrases begin with tokens that come to the model's mind as it speaks. Every other is
    to stop early."""
    prompt = (number % 29, 3 * number % 29, MARK)
    whole = prompt + greedy(model, prompt, 12)
    spelt: list[Ids] = []
    for length in range(len(prompt), len(whole), 2):
        _, second, third = model.dense_logits(whole[:length])[-1].topk(3).indices.tolist()
        spelt += [(second, (length + number) % 29), (third, second, (7 * length + number) % 29)]
    usable = tuple(each for each in spelt if MARK not in each)
    phrases = Phrases(MARK, usable[::2], usable, begin=6.0, go_on=12.0)
    request = Request(RequestId(f"r{number}"), prompt, Sample(SamplingParams(max_tokens=24, phrases=phrases)))
    if number % 2:
        return request
    stop = found_slowly(model, request)[0][20]
    sampling = msgspec.structs.replace(request.task.sampling, stop_token_ids=(stop,))
    return msgspec.structs.replace(request, task=msgspec.structs.replace(request.task, sampling=sampling))


@pytest.mark.parametrize("num_plans", [1, 2])
async def test_the_answer_is_that_of_a_slow_loop(
    autojump_clock: MockClock, nursery: trio.Nursery, num_plans: int
) -> None:
    """At once and as it comes, alone and side by side, with drafts that are right, wrong and old."""
    model = make_model()
    config = replace(CONFIG, max_plans_in_flight=num_plans, max_waiting=100)
    engine = make_fake_engine(lambda: make_toy_runner(model, num_blocks=config.num_blocks), config=config)
    await nursery.start(engine.run)
    seen: set[tuple[FinishReason, bool]] = set()
    num_other = 0

    async def check(request: SampleRequest, wanted: tuple[Ids, FinishReason]) -> None:
        answer = await run_whole(engine, request)
        assert (answer.token_ids, answer.finish_reason, answer.text) == (*wanted, decode(wanted[0]))
        streamed = msgspec.structs.replace(request, request_id=RequestId(f"{request.request_id}s"))
        async with engine.placed() as place, place.run(streamed) as stream:
            parts = [part async for part in stream]
        assert tuple(token for part in parts for token in part.token_ids) == wanted[0]
        assert parts[-1].finish_reason == wanted[1]

    async with trio.open_nursery() as askers:
        for number in range(24):
            request = make_request(model, number)
            tokens, reason, num_returns = found_slowly(model, request)
            seen.add((reason, num_returns > 1))
            plain = msgspec.structs.replace(request.task.sampling, phrases=None)
            free = await run_whole(
                engine,
                msgspec.structs.replace(request, task=msgspec.structs.replace(request.task, sampling=plain)),
            )
            num_other += free.token_ids != tokens
            drafts = ((), tokens, free.token_ids, (*tokens[:4], 1, *tokens[4:]))
            changed = msgspec.structs.replace(
                request,
                task=msgspec.structs.replace(
                    request.task,
                    draft_token_ids=drafts[number % 4],
                    rejoins_draft=number % 3 == 0,
                    ngram=NgramDraft() if number % 5 == 0 else None,
                ),
            )
            askers.start_soon(check, changed, (tokens, reason))
    assert seen == {(reason, is_often) for reason in ("stop", "length") for is_often in (False, True)}
    assert num_other >= 6, "phrases make a difference"
    await expect_all_free(engine)


async def test_phrases_go_without_stop_strings_and_grammars(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    model = make_model()
    engine = make_fake_engine(lambda: make_toy_runner(model, num_blocks=CONFIG.num_blocks))
    await nursery.start(engine.run)
    request = make_request(model, 1)
    for changes in ({"stop": ("x",)}, {"grammar": Grammar("regex", "a*")}):
        sampling = msgspec.structs.replace(request.task.sampling, **changes)
        with pytest.raises(BadRequestError, match="keyword boosting cannot be combined with"):
            await run_whole(
                engine,
                msgspec.structs.replace(
                    request, task=msgspec.structs.replace(request.task, sampling=sampling)
                ),
            )
    await expect_all_free(engine)
