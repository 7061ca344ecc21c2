"""The fake runner keeps the promises the real one makes, and answers as `answer_alone` says."""

from __future__ import annotations

import pytest
from sensorium.engine.models.qwen3_vl.positions import rotary_positions
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import (
    EncodeStep,
    MediaRows,
    Plan,
    SequenceId,
    SequenceStart,
    SequenceStep,
)
from sensorium.protocols.engine.messages import (
    ContentHash,
    MediaSpan,
    Request,
    RequestId,
    Sample,
    SamplingParams,
)
from support.fake_runner import NAN_ID, FakeRunner, answer_alone, item, next_token
from support.runner_conformance import RunnerCase, answers_alone, check_runner
from support.toy_runner import sampled

SAMPLING = SamplingParams(max_tokens=30, stop_token_ids=(7,), begin_suppress_token_ids=(7,))
PLAIN = SamplingParams(max_tokens=30)
PENALIZED = SamplingParams(max_tokens=30, presence_penalty=0.5)
KINDS = ["listening", "placed", "penalized", "text"]


def span(name: str, start: int, num_tokens: int, grid: tuple[int, int, int] | None = None) -> MediaSpan:
    return MediaSpan(ContentHash(name), start, num_tokens, grid)


def case(kind: str) -> RunnerCase:
    """Requests that listen, that have items in their prompts, or text only."""
    prompts = [tuple(range(1, 3 + number)) for number in range(6)]
    names = ["one", "two", "three"]
    requests = []
    for number, prompt in enumerate(prompts):
        request_id = RequestId(f"r{number}")
        name = names[number % 3]
        match kind:
            case "listening":
                request = Request(request_id, prompt, Sample(SAMPLING), encoder_hash=ContentHash(name))
            case "placed":
                media = (span(name, 2, 6), span("picture", 9, 6, (1, 2, 3)), span("one", 15, 2))
                request = Request(request_id, (1, 2, *[3] * 15, *prompt), Sample(PLAIN), media=media)
            case "penalized":
                request = Request(request_id, prompt * 3, Sample(PENALIZED))
            case _:
                request = Request(request_id, prompt * 3, Sample(PLAIN))
        requests.append(request)
    return RunnerCase(
        make_runner=lambda: FakeRunner(num_blocks=128, block_size=4),
        items=[item(name) for name in (*names, "picture")],
        requests=requests,
        config=SchedulerConfig(num_blocks=128, block_size=4, positions=rotary_positions),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_conformance(kind: str) -> None:
    check_runner(case(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_model_alone(kind: str) -> None:
    it = case(kind)
    assert answers_alone(it) == [answer_alone(request) for request in it.requests]


def step(
    sequence_id: int,
    start: int,
    *token_ids: int,
    slot: int | None = None,
    table: tuple[int, ...] = (0,),
    begins: bool = True,
    media: tuple[MediaRows, ...] = (),
    feeds_sampled: bool = False,
) -> Plan:
    begin = SequenceStart(RequestId("r"), token_ids, (), Sample(SAMPLING)) if begins else None
    sequence = SequenceStep(
        SequenceId(sequence_id),
        token_ids,
        start,
        table,
        slot,
        feeds_sampled,
        answers=not start,
        begin=begin,
        media=media,
    )
    return Plan(0, sequences=(sequence,))


def test_it_notices_what_a_device_would_not() -> None:
    runner = FakeRunner(num_blocks=2, block_size=4)
    with pytest.raises(AssertionError, match="never written"):
        runner.execute(step(0, 2, 5))
    runner.execute(step(1, 0, 1, 2, 3, 4))
    with pytest.raises(AssertionError, match="overwritten"):
        runner.execute(step(2, 6, 5, table=(0, 0)))
    with pytest.raises(AssertionError, match="used before"):
        runner.execute(step(1, 0, 1))
    with pytest.raises(KeyError):
        runner.execute(step(3, 0, 1, begins=False))
    with pytest.raises(KeyError):
        runner.execute(step(4, 0, 1, slot=3))
    with pytest.raises(KeyError):
        runner.execute(step(5, 0, 1, media=(MediaRows(3, 0, 1, 0),)))
    encode = Plan(0, encodes=(EncodeStep(0, item("x").features),))
    runner.execute(encode)
    with pytest.raises(AssertionError, match="used before"):
        runner.execute(encode)
    with pytest.raises(KeyError):
        runner.execute(Plan(0, ends=(SequenceId(9),)))


def test_a_sequence_that_is_over_is_answered_with_nothing_until_it_is_ended() -> None:
    runner = FakeRunner(num_blocks=2)
    assert sampled(runner.execute(step(0, 0, 1, NAN_ID)))[0].error is not None
    late = sampled(runner.execute(step(0, 2, begins=False, feeds_sampled=True)))[0]
    assert (late.token_ids, late.finish_reason, late.error) == ((), None, None)
    runner.execute(Plan(0, ends=(SequenceId(0),)))
    assert runner.num_sequences == 0


def test_the_fake_model_is_worth_testing_with() -> None:
    """Tokens depend on all that is in a cell, on the past and the rules; else errors would go unnoticed."""
    base = Request(RequestId("r"), (1, 2, 3, 4), Sample(PLAIN), media=(span("A", 0, 4, (1, 2, 2)),))
    variants = [
        base,
        Request(RequestId("r"), (1, 2, 3, 4), Sample(PLAIN)),
        Request(RequestId("r"), (1, 2, 3, 4), Sample(PLAIN), media=(span("A", 0, 4),)),
        Request(RequestId("r"), (1, 2, 3, 4), Sample(PLAIN), media=(span("B", 0, 4, (1, 2, 2)),)),
        Request(RequestId("r"), (1, 2, 3, 4), Sample(PLAIN), media=(span("A", 0, 4, (1, 1, 4)),)),
        Request(RequestId("r"), (2, 2, 3, 4), Sample(PLAIN), media=(span("A", 0, 4, (1, 2, 2)),)),
        Request(RequestId("r"), (1, 2, 3, 4), Sample(PLAIN), encoder_hash=ContentHash("A")),
        Request(RequestId("r"), (1, 2, 3, 4), Sample(SamplingParams(max_tokens=30, seed=1))),
    ]
    assert len({answer_alone(each)[0] for each in variants}) == len(variants)
    assert next_token([b"x"], [5], PENALIZED) != next_token([b"x"], [6], PENALIZED)
