"""Runs a beam search: a request for one token of each beam, all in one step of the device, until it is over.

What a beam has computed is kept under a session of its own, so that its next token costs one row, and a beam
that goes on from another what differs. Knows the engine by two functions. The rules of the search are
`engine/text/beam_search.py`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NoReturn, Protocol

import msgspec

from ...engine.text.beam_search import Beam, BeamSearch
from ...protocols.engine.messages import (
    RequestId,
    Sample,
    SampleRequest,
    SessionKey,
    TextGenerated,
    TokensSampled,
)
from ...protocols.errors import BadRequestError
from ..runtime.nursery import all_of
from .detokenizer import TextReader, TextStream
from .scheduler import Part


class Submit(Protocol):
    """Queues a request whose answer comes in one message; leaving ends it."""

    def __call__(
        self, request: SampleRequest, /, *, part: Part
    ) -> AbstractAsyncContextManager[TextStream]: ...


class SearchRun(TextReader):
    """The `Run` of a search, whose answer is known at its end only."""

    def __init__(self, search: Callable[[], Awaitable[TextGenerated]]) -> None:
        self._search = search

    async def outcome(self) -> TextGenerated:
        """Search. Cancelling ends all questions."""
        return await self._search()

    async def receive(self) -> NoReturn:
        """Raise BadRequestError."""
        raise BadRequestError("the answer of several beams comes at its end", param="num_beams")


def check_beams(request: SampleRequest) -> None:
    """Raise BadRequestError if a request with beams asks for what they do not go with."""
    sampling = request.task.sampling
    others = {
        "a temperature": sampling.temperature > 0,
        "a grammar": sampling.grammar is not None,
        "phrases": sampling.phrases is not None,
        "a budget of thoughts": sampling.reasoning_budget is not None,
        "stop strings": bool(sampling.stop),
        "penalties of the answer": bool(sampling.presence_penalty or sampling.frequency_penalty),
        "min_tokens": sampling.min_tokens > 0,
        "ignore_eos": sampling.ignore_eos,
        "log-probabilities of the prompt": sampling.prompt_logprobs is not None,
        "a session": request.session is not None,
    }
    for name, is_used in others.items():
        if is_used:
            raise BadRequestError(
                f"{sampling.num_beams} beams cannot be combined with {name}", param="num_beams"
            )


async def search(
    request: SampleRequest, submit: Submit, close_session: Callable[[SessionKey], None]
) -> TokensSampled:
    """The likeliest answer to `request`, or what became of the first of its questions that failed.

    Cancelling ends all questions. A draft is not looked at.
    """
    sampling = request.task.sampling
    beams = BeamSearch(
        sampling.num_beams,
        max_tokens=sampling.max_tokens,
        stop_token_ids=sampling.stop_token_ids,
        length_penalty=sampling.length_penalty,
        patience=sampling.patience,
    )
    one_token = msgspec.structs.replace(
        sampling, num_beams=1, max_tokens=1, stop_token_ids=(), logprobs=beams.num_candidates
    )
    base = msgspec.structs.replace(request, task=Sample(one_token, probe=request.task.probe))
    keys = [SessionKey(f"{request.request_id}/{place}") for place in range(sampling.num_beams)]
    first: TextGenerated | None = None
    try:
        while not beams.is_over:
            answers = await _generate(base, beams.running, keys, submit)
            failed = next((each for each in answers if each.finish_reason in ("error", "abort")), None)
            if failed is not None:
                return _ended(request.request_id, failed)
            if first is None:
                first = answers[0]
                later = msgspec.structs.replace(one_token, begin_suppress_token_ids=())
                base = msgspec.structs.replace(base, task=Sample(later))
            beams.advance([each.top_logprobs[0] for each in answers])
            keys = _handed_on(keys, beams.running)
    finally:
        for key in keys:
            close_session(key)
    best = beams.best()
    assert first is not None, "a search asks at least once"
    return TokensSampled(
        request_id=request.request_id,
        token_ids=best.token_ids,
        logprobs=best.logprobs if sampling.logprobs is not None else (),
        num_cached=first.num_cached,
        finish_reason=best.finish_reason,
        probe_probability=first.probe_probability,
    )


async def _generate(
    base: SampleRequest, running: Sequence[Beam], keys: Sequence[SessionKey], submit: Submit
) -> list[TextGenerated]:
    """The next token of each beam, and what else is likely there."""

    async def submit_beam(place: int) -> TextGenerated:
        token_ids = running[place].token_ids
        own = msgspec.structs.replace(
            base,
            request_id=RequestId(f"{base.request_id}/{len(token_ids)}/{place}"),
            prompt_token_ids=base.prompt_token_ids + token_ids,
            session=keys[place],
        )
        async with submit(own, part="later" if token_ids else "first") as stream:
            return await stream.receive()

    # Together, so that the scheduler sees all of them before it makes a plan.
    return await all_of(submit_beam, range(len(running)))


def _handed_on(keys: Sequence[SessionKey], running: Sequence[Beam]) -> list[SessionKey]:
    """The keys by the places of the next beams: the likeliest that goes on from a beam has its own."""
    heirs: dict[int, SessionKey] = {}
    left = dict.fromkeys(keys)
    for place, beam in enumerate(running):
        if keys[beam.parent] in left:
            heirs[place] = keys[beam.parent]
            del left[keys[beam.parent]]
    free = iter(left)
    return [heirs[place] if place in heirs else next(free) for place in range(len(running))] + list(free)


def _ended(request_id: RequestId, answer: TextGenerated) -> TokensSampled:
    return TokensSampled(
        request_id, (), finish_reason=answer.finish_reason, error=answer.error, fault=answer.fault
    )
