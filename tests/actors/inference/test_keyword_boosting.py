"""Answers with phrases: what is given out, what is asked again and with which words, and what is let go of.

In scripts a letter is a token, a capital one that was lifted.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager as Opened
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.inference.detokenizer import TextStream
from sensorium.actors.inference.keyword_boosting import MAX_RETURNS, PhraseStream, expecting
from sensorium.actors.inference.scheduler import Part
from sensorium.engine.text.detokenizer import Detokenizer, decoder_maker
from sensorium.engine.text.keyword_boosting import PhraseTree
from sensorium.protocols.engine.messages import (
    FinishReason,
    NgramDraft,
    Phrases,
    ProbabilityProbe,
    PromptLogprobs,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    TextGenerated,
)
from sensorium.protocols.errors import UnavailableError
from support.fake_runner import decode

MARK = 31
PROMPT = (40, MARK)
Ids = tuple[int, ...]


def ids(text: str) -> Ids:
    return tuple(ord(letter) - ord("a") for letter in text.lower())


SPELT = (ids("abc"), ids("de"))
PHRASES = Phrases(MARK, SPELT, SPELT, begin=1.0, go_on=2.0)
SAMPLING = SamplingParams(max_tokens=20, min_tokens=4, begin_suppress_token_ids=(3,), phrases=PHRASES)
REQUEST = Request(RequestId("r"), PROMPT, Sample(SAMPLING, probe=ProbabilityProbe(0, 1)))


def generated(text: str, finish: FinishReason | None = None, **fields: object) -> TextGenerated:
    """A part of an answer; each token's log-probability is a number that tells which it is."""
    tokens = ids(text)
    part = TextGenerated(
        RequestId("part"),
        tokens,
        text=decode(tokens),
        logprobs=tuple(-float(token) for token in tokens),
        top_logprobs=tuple(((token, -float(token)),) for token in tokens),
        finish_reason=finish,
        lifted=tuple(map(str.isupper, text)),
    )
    return msgspec.structs.replace(part, **fields)


Script = Sequence[TextGenerated]


class Engine:
    """Answers each request with the next script, and notes what happens."""

    def __init__(self, *scripts: Script) -> None:
        self.submitted: list[SampleRequest] = []
        self.parts: list[Part | None] = []
        self.events: list[str] = []
        self.streams: list[TextStream] = []
        self._scripts = iter(scripts)

    def submit(self, request: SampleRequest, /, *, part: Part | None) -> Opened[TextStream]:
        self.submitted.append(request)
        self.parts.append(part)
        return self._answered(request)

    @asynccontextmanager
    async def _answered(self, request: SampleRequest) -> AsyncIterator[TextStream]:
        stream = TextStream(request.request_id)
        self.streams.append(stream)
        for each in next(self._scripts):
            assert stream.put_nowait(each)
        self.events.append(f"opened {request.request_id}")
        try:
            yield stream
        finally:
            self.events.append(f"closed {request.request_id}")

    def expecting(self, request: SampleRequest = REQUEST) -> Opened[PhraseStream]:
        assert request.task.sampling.phrases is not None
        tree = PhraseTree(request.task.sampling.phrases)
        return expecting(
            request, self.submit, tree, Detokenizer(decoder_maker(decode)(), request.task.sampling)
        )

    async def given(self, request: SampleRequest = REQUEST) -> list[TextGenerated]:
        """All that comes out."""
        async with self.expecting(request) as stream:
            return [part async for part in stream]


def texts(parts: Sequence[TextGenerated]) -> list[str]:
    """Of parts that say of their tokens what they should."""
    for part in parts:
        assert part.request_id == REQUEST.request_id
        assert part.token_ids == ids(part.text)
        assert part.logprobs == tuple(-float(token) for token in part.token_ids)
        assert part.top_logprobs == tuple(((token, -float(token)),) for token in part.token_ids)
    assert [part.finish_reason is None for part in parts] == [True] * (len(parts) - 1) + [False]
    return [part.text for part in parts]


async def test_what_is_not_doubtful_is_given_as_it_comes() -> None:
    engine = Engine(
        [generated("x"), generated("ab"), generated("y"), generated("z", "length", stop_logprob=-3.0)]
    )
    parts = await engine.given()
    assert texts(parts) == ["x", "ab", "y", "z"]
    assert (parts[-1].finish_reason, parts[-1].stop_logprob) == ("length", -3.0)
    assert (engine.submitted, engine.parts) == ([REQUEST], [None])


async def test_a_lifted_phrase_waits_for_its_end() -> None:
    engine = Engine(
        [
            generated("xA"),
            generated("b"),
            generated("cy"),
            generated("D"),
            generated("ez"),
            generated("", "stop"),
        ]
    )
    assert texts(await engine.given()) == ["x", "abcy", "dez", ""]
    assert len(engine.submitted) == 1


@pytest.mark.parametrize(
    ("script", "again", "start", "wanted"),
    [
        ([generated("A"), generated("x")], [generated("y"), generated("z", "stop")], 0, ["y", "z"]),
        (
            [generated("v"), generated("w"), generated("A"), generated("b"), generated("x")],
            [generated("yz", "stop")],
            2,
            ["v", "w", "yz"],
        ),
        ([generated("vwABxy")], [generated("yz", "stop")], 2, ["vwyz"]),
        ([generated("vw"), generated("xAb", "stop")], [generated("y", "stop")], 3, ["vw", "xy"]),
        ([generated("vDebA"), generated("", "stop")], [generated("", "stop")], 4, ["vdeb", ""]),
        ([generated("vAx", "length")], [generated("w", "length")], 1, ["vw"]),
    ],
    ids=["first token", "middle", "inside a part", "at its end", "at a bare end", "in a last part"],
)
async def test_from_a_false_start_on_the_answer_is_found_again(
    script: Script, again: Script, start: int, wanted: list[str]
) -> None:
    engine = Engine(script, again)
    parts = await engine.given()
    assert texts(parts) == wanted
    kept = ids("".join(part.text for part in script)[:start])
    sampling = msgspec.structs.replace(
        SAMPLING,
        max_tokens=20 - start,
        min_tokens=max(0, 4 - start),
        begin_suppress_token_ids=() if start else (3,),
        phrases_from=1,
    )
    assert engine.submitted[1:] == [
        msgspec.structs.replace(
            REQUEST,
            task=msgspec.structs.replace(REQUEST.task, probe=None, sampling=sampling),
            request_id=RequestId("r/1"),
            prompt_token_ids=PROMPT + kept,
        )
    ]
    assert engine.parts == [None, "later"]
    assert engine.events == ["opened r", "closed r", "opened r/1", "closed r/1"]


async def test_at_the_longest_length_a_beginning_stays() -> None:
    """Nobody knows what would have followed."""
    engine = Engine([generated("vA"), generated("b", "length")])
    assert texts(await engine.given()) == ["v", "ab"]
    assert len(engine.submitted) == 1


async def test_a_phrase_goes_on_that_began_before_the_return() -> None:
    """The watch knows what stands in the prompt: `ab` was said by itself, `c` is lifted behind it."""
    engine = Engine([generated("abD"), generated("x")], [generated("C"), generated("y", "stop")])
    assert texts(await engine.given()) == ["ab", "c", "y"]
    assert len(engine.submitted) == 2


async def test_each_false_start_is_taken_back() -> None:
    engine = Engine(
        [generated("vA"), generated("x")],
        [generated("w"), generated("Dx")],
        [generated("yA"), generated("bz")],
        [generated("abcz", "stop")],
    )
    assert texts(await engine.given()) == ["v", "w", "y", "abcz"]
    assert [each.request_id for each in engine.submitted] == ["r", "r/1", "r/2", "r/3"]
    assert [each.prompt_token_ids for each in engine.submitted] == [
        PROMPT + ids(kept) for kept in ("", "v", "vw", "vwy")
    ]
    assert [each.task.sampling.max_tokens for each in engine.submitted] == [20, 19, 18, 17]
    assert [each.task.sampling.min_tokens for each in engine.submitted] == [4, 3, 2, 1]
    assert engine.events[-2:] == ["opened r/3", "closed r/3"]


async def test_behind_too_many_returns_nothing_is_likelier() -> None:
    last = [generated("ab", lifted=()), generated("x", lifted=()), generated("d", "stop", lifted=())]
    engine = Engine(*([generated("zA"), generated("x")] for _ in range(MAX_RETURNS)), last)
    assert "".join(texts(await engine.given())) == "z" * MAX_RETURNS + "abxd"
    phrases = [each.task.sampling.phrases for each in engine.submitted]
    assert phrases == [PHRASES] * MAX_RETURNS + [None]


async def test_without_phrases_all_is_sure_at_once() -> None:
    last = [generated("ab", lifted=()), generated("x", lifted=()), generated("d", "stop", lifted=())]
    engine = Engine(*([generated("A"), generated("x")] for _ in range(MAX_RETURNS)), last)
    assert texts(await engine.given()) == ["ab", "x", "d"]


@pytest.mark.parametrize("reason", ["error", "abort"])
async def test_failures_are_passed_on(reason: FinishReason) -> None:
    """Also while something is doubtful: nothing is asked again."""
    error = None if reason == "abort" else "the logits are not numbers"
    fault = None if reason == "abort" else "not_finite"
    engine = Engine([generated("vA"), generated("", reason, error=error, fault=fault)])
    parts = await engine.given()
    assert parts[0].text == "v"
    assert (parts[-1].finish_reason, parts[-1].error, parts[-1].fault) == (reason, error, fault)
    assert (len(parts), len(engine.submitted)) == (2, 1)


async def test_a_failure_behind_a_return_is_passed_on() -> None:
    engine = Engine(
        [generated("A"), generated("x")], [generated("", "error", error="no", fault="not_encoded")]
    )
    parts = await engine.given()
    assert [(part.text, part.finish_reason, part.error) for part in parts] == [("", "error", "no")]


async def test_an_engine_that_goes_down_is_told() -> None:
    engine = Engine([generated("vA")])
    async with engine.expecting() as stream:
        assert (await stream.receive()).text == "v"
        engine.streams[0].fail(UnavailableError("it is down"))
        with pytest.raises(UnavailableError, match="it is down"):
            await stream.receive()
    assert engine.events == ["opened r", "closed r"]


@pytest.mark.parametrize(
    "scripts",
    [
        [["v", "w"]],
        [["A", "bc", "v"]],
        [["A", "x"], ["v", "w"]],
        [["A", "x"], ["D", "v"], ["w", "v"]],
        [[""]],
    ],
    ids=["at once", "held back", "taken back", "twice", "nothing said"],
)
async def test_what_is_said_once_comes_with_the_first_text(scripts: list[list[str]]) -> None:
    """What the first request said of it, not later ones."""
    answers: list[Script] = []
    for number, script in enumerate(scripts):
        first = generated(script[0], num_cached=7 + number, probe_probability=None if number else 0.25)
        parts = [first, *map(generated, script[1:])]
        if number == len(scripts) - 1:
            parts[-1] = msgspec.structs.replace(parts[-1], finish_reason="stop")
        answers.append(parts)
    parts = await Engine(*answers).given()
    rest = len(parts) - 1
    assert [part.probe_probability for part in parts] == [0.25] + [None] * rest
    assert [part.num_cached for part in parts] == [7] + [0] * rest


@pytest.mark.parametrize(
    ("draft", "left"),
    [("vwxyz", "xyz"), ("vw", ""), ("vxxyz", ""), ("v", ""), ("", ""), ("vwabc", "abc")],
)
async def test_of_a_draft_what_is_still_to_come_is_left(draft: str, left: str) -> None:
    ngram = NgramDraft(num_tokens=3)
    submitted = msgspec.structs.replace(
        REQUEST,
        task=msgspec.structs.replace(
            REQUEST.task, draft_token_ids=ids(draft), rejoins_draft=True, ngram=ngram
        ),
    )
    engine = Engine([generated("vwA"), generated("x")], [generated("xDz")], [generated("xyz", "stop")])
    assert "".join(texts(await engine.given(submitted))) == "vwxxyz"
    second = engine.submitted[1]
    assert second.task.draft_token_ids == ids(left)
    assert (second.task.rejoins_draft, second.task.ngram) == (True, ngram)
    assert engine.submitted[2].task.draft_token_ids == ids(left[1:] if left[:1] == "x" else "")


async def test_cancelling_ends_what_is_asked() -> None:
    engine = Engine([generated("A"), generated("x")], [generated("v")])
    got: list[str] = []

    async def read() -> None:
        async with engine.expecting() as stream:
            while True:
                got.append((await stream.receive()).text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert (got, engine.events) == (["v"], ["opened r", "closed r", "opened r/1"])
        nursery.cancel_scope.cancel()
    assert engine.events[3:] == ["closed r/1"]


async def test_leaving_ends_what_is_asked() -> None:
    engine = Engine([generated("v"), generated("w"), generated("A")])
    async with engine.expecting() as stream:
        assert (await stream.receive()).text == "v"
        assert engine.events == ["opened r"]
    assert engine.events == ["opened r", "closed r"]


async def test_behind_the_last_text_there_is_nothing() -> None:
    engine = Engine([generated("v"), generated("A", "stop")], [generated("w", "stop")])
    async with engine.expecting() as stream:
        was_finished = stream.is_finished
        assert [part.text async for part in stream] == ["v", "w"]
        assert (was_finished, stream.is_finished) == (False, True)
        with pytest.raises(trio.EndOfChannel):
            await stream.receive()


@given(st.sets(st.integers(1, 12)))
async def test_every_way_of_cutting_gives_the_same(cuts: set[int]) -> None:
    """Never more than is sure, and the same is asked again."""

    def cut(text: str) -> list[TextGenerated]:
        edges = [0, *sorted(each for each in cuts if each < len(text)), len(text)]
        parts = [generated(text[start:end]) for start, end in itertools.pairwise(edges)]
        return [*parts[:-1], msgspec.structs.replace(parts[-1], finish_reason="stop")]

    engine = Engine(cut("abcvAbDez"), cut("wDeAbC"), cut("xD"))
    assert "".join(texts(await engine.given())) == "abcvwdeabc"
    assert [each.prompt_token_ids[2:] for each in engine.submitted] == [(), ids("abcv")]


@pytest.mark.parametrize("reason", ["error", "abort"])
@pytest.mark.parametrize("is_separate", [False, True])
async def test_what_was_ended_is_not_asked_for_again(reason: FinishReason, is_separate: bool) -> None:
    """Not even where the end comes in a message of its own: it would end the newer request of its session."""
    parts = [generated("vAx"), generated("", reason)] if is_separate else [generated("vAx", reason)]
    engine = Engine(parts, [generated("w", "stop")])
    answer = await engine.given()
    assert (len(engine.submitted), answer[-1].finish_reason) == (1, reason)


async def test_each_message_brings_as_many_tokens_as_are_asked_for() -> None:
    engine = Engine([generated("vwA"), generated("xyz")], [generated("xyz"), generated("", "stop")])
    parts = await engine.given(
        msgspec.structs.replace(REQUEST, task=msgspec.structs.replace(REQUEST.task, tokens_a_message=3))
    )
    assert all(len(part.token_ids) >= 3 for part in parts[:-1])


async def test_what_is_told_of_the_prompt_is_passed_on() -> None:
    of_prompt = PromptLogprobs((-1.0,), ((),), (1,))
    (part,) = await Engine([generated("v", "stop", prompt_logprobs=of_prompt)]).given()
    assert part.prompt_logprobs == of_prompt
