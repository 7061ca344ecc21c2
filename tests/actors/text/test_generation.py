"""Several answers on a fake engine: order, prefix first, failures and cancelling leave nothing running."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from sensorium.actors.inference.engine import Engine
from sensorium.actors.text.generation import Answer, TextModel, answer_all, answer_one, with_ends
from sensorium.actors.text.prompts import Prompter
from sensorium.engine.models.prompts import Prompt
from sensorium.protocols.engine.messages import Grammar, RequestId, SamplingParams, TextGenerated
from sensorium.protocols.errors import OverloadedError
from support.fake_engine import make_fake_engine

PROMPT = Prompt(tuple(range(1, 10)))
PARAMS = SamplingParams(max_tokens=5)
ENDS = (1000, 1001)


def model_of(engine: Engine) -> TextModel:
    builder = SimpleNamespace(info=SimpleNamespace(stop_token_ids=ENDS))
    prompter = SimpleNamespace(holding=lambda prompt: nullcontext(), builder=builder)
    return TextModel("fake", engine, cast(Prompter, prompter))


@pytest.fixture
async def model(autojump_clock: trio.testing.MockClock, nursery: trio.Nursery) -> TextModel:
    engine = make_fake_engine()
    await nursery.start(engine.run)
    return model_of(engine)


def is_quiet(model: TextModel) -> bool:
    now = model.engine.statistics()
    return now.num_running + now.num_waiting == 0 and now.num_free_blocks == now.num_total_blocks


async def test_one_answer_is_the_same_by_pieces(model: TextModel) -> None:
    whole = await answer_one(model, PROMPT, PARAMS)
    pieces: list[TextGenerated] = []
    (answer,) = await answer_all(model, PROMPT, [PARAMS], on_piece=lambda _, piece: pieces.append(piece))
    assert (answer.text, answer.token_ids) == (whole.text, whole.token_ids)
    assert answer.finish_reason == whole.finish_reason == "length"
    assert "".join(piece.text for piece in pieces) == whole.text
    assert len(pieces) > 1
    assert is_quiet(model)


async def test_the_second_choice_starts_behind_the_firsts_first_token(model: TextModel) -> None:
    log: list[str] = []
    answers = await answer_all(
        model,
        PROMPT,
        [PARAMS] * 3,
        on_accepted=lambda index: log.append(f"accepted {index}"),
        on_piece=lambda index, _: log.append(f"piece {index}"),
    )
    assert log[:2] == ["accepted 0", "piece 0"]
    assert {"accepted 1", "accepted 2"} <= set(log)
    assert len(answers) == 3
    assert len({answer.text for answer in answers}) == 1
    assert answers[1].num_cached == 8  # two blocks of four
    assert is_quiet(model)


async def test_cancelling_aborts_all(model: TextModel) -> None:
    with trio.move_on_after(0.05) as scope:
        await answer_all(model, PROMPT, [SamplingParams(max_tokens=60)] * 2)
    assert scope.cancelled_caught
    await trio.sleep(0.05)
    assert is_quiet(model)


async def test_what_goes_wrong_in_a_reader_aborts_all(model: TextModel) -> None:
    def fail(index: int, piece: TextGenerated) -> None:
        if index == 1:
            raise ValueError("reader")

    with pytest.raises(ValueError, match="reader"):
        await answer_all(model, PROMPT, [SamplingParams(max_tokens=60)] * 2, on_piece=fail)
    await trio.sleep(0.05)
    assert is_quiet(model)


async def test_a_full_queue_is_told_as_itself(model: TextModel) -> None:
    with pytest.raises(OverloadedError):
        await answer_all(model, PROMPT, [SamplingParams(max_tokens=60)] * 40)
    await trio.sleep(0.05)
    assert is_quiet(model)


def test_an_answer_collects() -> None:
    answer = Answer()
    answer.add(TextGenerated(RequestId("a"), (1,), text="x", logprobs=(-1.0,), num_cached=4))
    answer.add(
        TextGenerated(RequestId("a"), (2,), text="y", logprobs=(-2.0,), finish_reason="stop", stop="z")
    )
    assert (answer.text, answer.token_ids, answer.logprobs) == ("xy", [1, 2], [-1.0, -2.0])
    assert (answer.num_cached, answer.finish_reason, answer.stop) == (4, "stop", "z")


def test_an_answer_ends_at_the_models_end_tokens_unless_they_are_ignored() -> None:
    model = model_of(make_fake_engine())

    def ends(**named: Any) -> tuple[tuple[int, ...], bool]:  # noqa: ANN401
        params = with_ends(model, SamplingParams(max_tokens=5, **named))
        return params.stop_token_ids, params.ignore_eos

    assert ends() == (ENDS, False)
    assert ends(stop_token_ids=(7, 1000)) == ((7, 1000, 1001), False)
    assert ends(ignore_eos=True) == ((), True)
    assert ends(ignore_eos=True, stop_token_ids=(7,)) == ((7,), False)
    assert ends(ignore_eos=True, grammar=Grammar("json_object")) == (ENDS, False)


async def test_looking_up_in_the_prompt_saves_steps_and_changes_nothing(model: TextModel) -> None:
    plain = await answer_one(model, PROMPT, SamplingParams(max_tokens=30))
    before = model.engine.statistics()
    assert before.num_draft_tokens == 0
    repeating = Prompt((*PROMPT.token_ids, *plain.token_ids, *PROMPT.token_ids))
    wanted = await answer_one(model, repeating, SamplingParams(max_tokens=30))
    answer = await answer_one(replace(model, num_ngram_drafts=4), repeating, SamplingParams(max_tokens=30))
    assert answer.token_ids == wanted.token_ids
    assert model.engine.statistics().num_draft_tokens > 0


async def test_what_nobody_waits_for_any_more_is_freed_a_part_at_a_time() -> None:
    """A client that leaves behind 300,000 log-probabilities must not hold the loop while they go."""
    answer = Answer(top_logprobs=[((1, -0.5),)] * 5000)
    sizes: list[int] = []

    async def look() -> None:
        while answer.top_logprobs:
            sizes.append(len(answer.top_logprobs))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        nursery.start_soon(answer.let_go)
    assert len(sizes) >= 5000 // 512 - 1


async def test_an_answer_that_is_cancelled_is_let_go(
    model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[Answer] = []

    async def let_go(answer: Answer) -> None:
        gone.append(answer)

    monkeypatch.setattr(Answer, "let_go", let_go)
    with trio.move_on_after(0.05):
        await answer_all(model, PROMPT, [SamplingParams(max_tokens=60)] * 2)
    assert len(gone) == 2
