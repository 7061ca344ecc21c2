"""Prompts answered `n` times each, as one body or as a stream: what all routes of text models do alike.

A route says how its request becomes prompts and how answers look (`Shape`); this file runs them, counts
usage, bounds what is reported, and renders what is large off the loop. Read next:
`actors/http/chat/completions.py`, `actors/http/chat/routes.py`, and `actors/text/generation.py` for the work
itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Final, Protocol

import msgspec
import trio
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ....engine.models.prompts import Prompt
from ....protocols.engine.messages import MediaKind, SamplingParams, TextGenerated
from ....protocols.errors import BadRequestError, SensoriumError
from ....protocols.shared.generation import (
    CompletionTokensDetails,
    CompletionUsage,
    GenerationRequest,
    choice_params,
    fitted,
    usage,
)
from ....protocols.shared.json_body import FieldNames, renamed
from ....protocols.shared.speculative import ngram_draft, predicted_text
from ...callers import Caller
from ...runtime.nursery import all_of
from ...runtime.off_loop import off_loop
from ...text.generation import Answer, Drafting, TextModel, answer_all
from ..event_stream import EventStream, Put, SlicedResponse, put_any, unless_gone
from ..service import Hold, Service
from .text_requests import JSON

_INLINE_ENTRIES: Final = 500
_INLINE_TOKENS: Final = 4000
"""Of prompts: they may hold tools with some 400 properties, which take 3 ms to be a grammar."""
_STRUCTURED: Final = (("response_format", "structured_outputs"),)
"""What the engine calls a form, where the request has it by the other name."""

UsageSoFar = CompletionUsage | UnsetType | None


class Shape(Protocol):
    """One request of one route: its prompts, and how its answers are written."""

    def prompts(self, scope: str, caller: str) -> AbstractAsyncContextManager[Sequence[Prompt]]:
        """The prompts; what they hold is held until it is left. `scope`: who may find their files again."""

    def fit(self, prompt: Prompt, params: SamplingParams) -> SamplingParams:
        """How to sample the answers to this prompt. Raises BadRequestError."""

    def body(
        self, prompts: Sequence[Prompt], answers: Sequence[Sequence[Answer]], found: CompletionUsage
    ) -> bytes:
        """The whole answer; by prompt, then by choice. May be called in a thread."""

    def begin(self, number: int, found: UsageSoFar) -> bytes | None:
        """The first event of a choice, when it is in the engine's queue."""

    def piece(self, number: int, prompt: Prompt, piece: TextGenerated, found: UsageSoFar) -> bytes | None:
        """The event of what is new in choice `number`; None if there is nothing to tell yet."""

    def end(self, found: CompletionUsage) -> bytes:
        """The last event, where usage was asked for."""

    def fail(self, _: SensoriumError) -> bytes | None:
        """The last event of a stream that fails; None where it is that of `actors/http/error_bodies.py`."""
        return None


class Answering:
    """Answers one request."""

    def __init__(
        self,
        service: Service,
        caller: Caller,
        model: TextModel,
        options: GenerationRequest,
        params: SamplingParams,
        shape: Shape,
        *,
        has_limit: bool,
        num_answers: int = 0,
        names: FieldNames = (),
    ) -> None:
        """`has_limit`: the client named `max_tokens`, so that nothing less will do. `names`: fields that are
        named otherwise than in chat.

        `num_answers`: those of a request that may ask for several; they are counted while they are made.
        """
        self._model = model
        self._options = options
        self._params = params
        self._shape = shape
        self._has_limit = has_limit
        self._lane = service.lane(caller, priority=options.priority or 0, num_answers=num_answers)
        self._cache_salt = service.cache_salt(caller, options.cache_salt)
        self._max_entries = service.config.engine.max_logprob_entries
        """Log-probabilities that may be reported, alternatives included."""
        self._names = names if options.response_format is not None else (*_STRUCTURED, *names)
        self._answers = partial(service.answers, caller, num_answers) if num_answers else nullcontext
        self._num_predicted = 0

    async def respond(
        self, request: Request, hold: Hold, settle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    ) -> Response:
        """The response, whole or streamed, which ends when `settle` is done; a client that leaves ends the
        work."""

        async def stream(put: Put) -> None:
            await self.stream_or_fail(put)
            await settle()

        async def answer() -> Response:
            body = await self.whole()
            await settle()
            return SlicedResponse(body, media_type=JSON)

        if self._options.streams:
            return EventStream(stream, hold)

        return await unless_gone(request, answer)

    async def whole(self) -> bytes:
        """The body of the whole answer."""
        async with self._prompts() as prompts:
            answers = await self._run(prompts, None)
            total = self._total(prompts, answers)

            def render() -> bytes:
                body = self._shape.body(prompts, answers, total)
                for group in answers:  # here and not on the loop: forgetting takes time, too
                    for each in group:
                        each.forget()
                    group.clear()
                return body

            size = total.total_tokens + sum(
                _num_entries(self._params, prompt, group)
                for prompt, group in zip(prompts, answers, strict=True)
            )
            return await off_loop(render, size=size, most_inline=_INLINE_ENTRIES)

    async def stream_or_fail(self, put: Put) -> None:
        """`stream`, but what fails after the first event is told as the last. Raises what fails before."""
        try:
            await self.stream(put)
        except SensoriumError as error:
            last = self._shape.fail(error)
            if last is None:
                raise
            put(last)

    async def stream(self, put: Put) -> None:
        """Put the events as they are made. Raises what fails, also where some were put."""
        total = await self.put_answers(put)
        if self._options.includes_usage:
            put(self._shape.end(total))

    async def put_answers(self, put: Put) -> CompletionUsage:
        """`stream` without its last event: the usage, which that tells."""
        async with self._prompts() as prompts:
            num_choices = self._options.num_choices
            num_tokens = [0] * (len(prompts) * num_choices)
            num_cached = [0] * len(prompts)

            def so_far(place: int, number: int) -> UsageSoFar:
                if self._options.repeats_usage:
                    return usage(len(prompts[place].token_ids), num_tokens[number], num_cached[place])
                return None if self._options.includes_usage else UNSET

            def on_accepted(place: int, index: int) -> None:
                number = place * num_choices + index
                put_any(put, self._shape.begin(number, so_far(place, number)))

            def on_piece(place: int, index: int, piece: TextGenerated) -> None:
                number = place * num_choices + index
                num_tokens[number] += piece.num_sampled
                num_cached[place] = max(num_cached[place], piece.num_cached)
                put_any(put, self._shape.piece(number, prompts[place], piece, so_far(place, number)))

            return self._total(prompts, await self._run(prompts, on_piece, on_accepted))

    @asynccontextmanager
    async def _prompts(self) -> AsyncIterator[Sequence[Prompt]]:
        """Within, errors name fields as the route does."""
        with self._answers(), renamed(self._names):
            async with self._shape.prompts(self._cache_salt, self._lane.caller) as prompts:
                yield prompts

    async def _run(
        self,
        prompts: Sequence[Prompt],
        on_piece: Callable[[int, int, TextGenerated], None] | None,
        on_accepted: Callable[[int, int], None] = lambda *_: None,
    ) -> list[list[Answer]]:
        self._params = await self._model.prompter.without(self._params, self._options.bad_words)
        # Tools that must be called make a grammar of all their properties, which are in the prompt.
        num_tokens = sum(len(prompt.token_ids) for prompt in prompts)
        limits = await off_loop(partial(self._bounded, prompts), size=num_tokens, most_inline=_INLINE_TOKENS)
        drafting = await self._drafting()

        async def run(place: int) -> list[Answer]:
            return await answer_all(
                self._model,
                prompts[place],
                [choice_params(limits[place], index) for index in range(self._options.num_choices)],
                lane=self._lane,
                cache_salt=self._cache_salt,
                drafting=drafting,
                on_accepted=partial(on_accepted, place),
                on_piece=None if on_piece is None else partial(on_piece, place),
            )

        return await all_of(run, range(len(prompts)))

    async def _drafting(self) -> Drafting:
        """What the answers are guessed from. A prediction stands alone, so that what came of it is told."""
        if self._options.prediction is not None:
            text = predicted_text(self._options.prediction)
            predicted = await self._model.prompter.prediction(text)
            self._num_predicted = len(predicted)
            return Drafting(predicted)
        return Drafting(ngram=ngram_draft(self._options.speculative, self._model.num_ngram_drafts))

    def _total(self, prompts: Sequence[Prompt], answers: Sequence[Sequence[Answer]]) -> CompletionUsage:
        """Each prompt counts once, however many answers it has."""
        every = [answer for group in answers for answer in group]
        found = usage(
            sum(len(prompt.token_ids) for prompt in prompts),
            sum(answer.num_sampled for answer in every),
            sum(group[0].num_cached for group in answers),
            num_image=_num_media(prompts, "image"),
            num_video=_num_media(prompts, "video"),
            num_audio=_num_media(prompts, "audio"),
            replaced=[each for prompt in prompts for each in prompt.replaced],
        )
        if self._options.prediction is None:
            return found
        accepted = sum(answer.num_draft_accepted for answer in every)
        details = CompletionTokensDetails(
            accepted_prediction_tokens=accepted,
            rejected_prediction_tokens=self._num_predicted * len(every) - accepted,
        )
        return msgspec.structs.replace(found, completion_tokens_details=details)

    def _bounded(self, prompts: Sequence[Prompt]) -> list[SamplingParams]:
        """How to sample for each prompt, so that no more is reported than may be. Raises BadRequestError."""
        num_room = self._model.prompter.builder.num_room
        fit = [self._shape.fit(prompt, fitted(self._params, num_room(prompt))) for prompt in prompts]
        if self._params.logprobs is None and self._params.prompt_logprobs is None:
            return fit
        num_choices, num_prompt = self._options.num_choices, 0
        if self._params.prompt_logprobs is not None:
            each = num_choices * (1 + self._params.prompt_logprobs)
            num_prompt = each * sum(len(prompt.token_ids) for prompt in prompts)
        per_token = 0 if self._params.logprobs is None else num_choices * (1 + self._params.logprobs)
        if not self._has_limit and per_token:
            most = max(0, self._max_entries - num_prompt) // (per_token * len(prompts))
            fit = [fitted(params, max(1, most)) for params in fit]
        num_answer = per_token * sum(params.max_tokens for params in fit)
        if num_prompt + num_answer <= self._max_entries:
            return fit
        param = "logprobs" if num_answer >= num_prompt else "prompt_logprobs"
        raise BadRequestError(
            f"The answer may have {num_prompt + num_answer:,} log-probabilities, alternatives included; "
            f"allowed: up to {self._max_entries:,}. Ask for fewer in `{param}`, or fewer tokens or answers.",
            param=param,
        )


def _num_entries(params: SamplingParams, prompt: Prompt, answers: Sequence[Answer]) -> int:
    """Log-probabilities in the answers to one prompt."""
    of_prompt = 0 if params.prompt_logprobs is None else (1 + params.prompt_logprobs) * len(prompt.token_ids)
    each = 0 if params.logprobs is None else 1 + params.logprobs
    return len(answers) * of_prompt + each * sum(len(answer.token_ids) for answer in answers)


def _num_media(prompts: Sequence[Prompt], kind: MediaKind) -> int:
    """Tokens of media of a kind."""
    spans = (span for prompt in prompts for span in prompt.spans if span.medium == kind)
    return sum(span.num_tokens for span in spans)
