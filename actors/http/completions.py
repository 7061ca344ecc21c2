"""`/v1/completions`, `/tokenize` and `/detokenize`: bodies in, answers or event streams out.

Shapes are `protocols/completions.py`, prompts `actors/text/prompts.py`, the work is
`actors/text/generation.py`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ...engine.models.prompts import Prompt
from ...protocols.completions import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    DetokenizeResponse,
    TokenizeResponse,
    completion_body,
    completion_event,
    completion_params,
    parse_completion,
    parse_detokenize,
    parse_tokenize,
    prompts_of,
)
from ...protocols.generation import CompletionUsage, choice_params, finished_by, fitted, usage
from ...protocols.messages import Lane, PromptLogprobs, SamplingParams, TextGenerated
from ..kernel.nursery import open_work
from ..text.generation import Answer, TextModel, answer_all
from .event_stream import EventStream, Put, unless_gone
from .logprobs import completion_logprobs, prompt_logprob_list
from .service import Service, caller_of
from .text_requests import JSON, admission, cache_salt, read_and_parse, text_model, total_usage


class CompletionRoutes:
    """The endpoints. They take a request and give a response or raise a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def completions(self, request: Request) -> Response:
        """Continue prompts."""
        hold = admission(self._service, request)
        with hold():
            wish = await read_and_parse(self._service, request, parse_completion)
            model = text_model(self._service, wish.model)
            info = model.prompter.builder.info
            params = completion_params(wish, vocab_size=info.vocab_size, defaults=info.sampling)
            num_answers = len(prompts_of(wish)) * wish.num_choices
            lane = self._service.lane(
                caller_of(request), priority=wish.priority or 0, num_answers=num_answers
            )
            job = _Job(model, wish, params, lane, cache_salt(self._service, request, wish.cache_salt))

            async def answer() -> Response:
                return Response(await job.body(), media_type=JSON)

            if wish.streams:
                return EventStream(job.stream, hold)
            return await unless_gone(request, answer)

    async def tokenize(self, request: Request) -> Response:
        """A text's ids, as `completions` would read it."""
        with admission(self._service, request)():
            wish = await read_and_parse(self._service, request, parse_tokenize)
            model = text_model(self._service, wish.model)
            prompt = await model.prompter.completion(wish.prompt)
        tokens = model.prompter.builder.tokens
        answer = TokenizeResponse(
            count=len(prompt.token_ids),
            max_model_len=model.prompter.builder.info.max_context,
            tokens=prompt.token_ids,
            token_strs=[tokens.name(each) for each in prompt.token_ids] if wish.return_token_strs else None,
        )
        return Response(msgspec.json.encode(answer), media_type=JSON)

    async def detokenize(self, request: Request) -> Response:
        """The text of ids."""
        with admission(self._service, request)():
            wish = await read_and_parse(self._service, request, parse_detokenize)
            model = text_model(self._service, wish.model)
            prompt = await model.prompter.completion(wish.tokens, param="tokens")
        text = model.prompter.builder.text.decode(prompt.token_ids)
        return Response(msgspec.json.encode(DetokenizeResponse(text)), media_type=JSON)


@dataclass(slots=True)
class _Sent:
    """What a choice of a stream has sent so far."""

    num_chars: int = 0
    num_tokens: int = 0
    has_begun: bool = False


class _Job:
    """One request: its prompts, each answered `n` times, numbered through."""

    def __init__(
        self, model: TextModel, wish: CompletionRequest, params: SamplingParams, lane: Lane, salt: str
    ) -> None:
        self._model = model
        self._lane = lane
        self._salt = salt
        self._wish = wish
        self._choices = [choice_params(params, index) for index in range(wish.num_choices)]
        self._id = f"cmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._tokens = model.prompter.builder.tokens

    async def body(self) -> bytes:
        """The whole answer."""
        prompts = await self._prompts()
        answers = await self._run(prompts, None)
        choices = [
            self._choice(place * len(self._choices) + index, place, prompt, answer)
            for place, (prompt, group) in enumerate(zip(prompts, answers, strict=True))
            for index, answer in enumerate(group)
        ]
        return completion_body(self._completion(choices, self._usage(prompts, answers)))

    async def stream(self, put: Put) -> None:
        """Chunks as they come."""
        prompts = await self._prompts()
        sent = [_Sent() for _ in range(len(prompts) * len(self._choices))]
        num_cached = [0] * len(prompts)

        def on_piece(place: int, index: int, piece: TextGenerated) -> None:
            number = place * len(self._choices) + index
            num_cached[place] = max(num_cached[place], piece.num_cached)
            chunk = self._chunk(number, place, prompts[place], sent[number], piece)
            if chunk is None:
                return
            so_far: CompletionUsage | UnsetType | None = None if self._wish.includes_usage else UNSET
            if self._wish.repeats_usage:
                num_tokens = sent[number].num_tokens
                so_far = usage(len(prompts[place].token_ids), num_tokens, num_cached[place])
            put(completion_event(self._completion([chunk], so_far)))

        answers = await self._run(prompts, on_piece)
        if self._wish.includes_usage:
            put(completion_event(self._completion([], self._usage(prompts, answers))))

    async def _prompts(self) -> list[Prompt]:
        asked = prompts_of(self._wish)
        is_one = isinstance(self._wish.prompt, str) or isinstance(self._wish.prompt[0], int)
        params = ["prompt"] if is_one else [f"prompt[{place}]" for place in range(len(asked))]
        return [
            await self._model.prompter.completion(prompt, param=param)
            for prompt, param in zip(asked, params, strict=True)
        ]

    async def _run(
        self, prompts: list[Prompt], on_piece: Callable[[int, int, TextGenerated], None] | None
    ) -> list[list[Answer]]:
        answers: dict[int, list[Answer]] = {}

        async def run(place: int, prompt: Prompt) -> None:
            room = self._model.prompter.builder.num_room(prompt)
            answers[place] = await answer_all(
                self._model,
                prompt,
                [fitted(params, room) for params in self._choices],
                lane=self._lane,
                cache_salt=self._salt,
                on_piece=None if on_piece is None else partial(on_piece, place),
            )

        async with open_work() as nursery:
            for place, prompt in enumerate(prompts):
                nursery.start_soon(run, place, prompt)
        return [answers[place] for place in range(len(prompts))]

    def _choice(self, number: int, place: int, prompt: Prompt, answer: Answer) -> CompletionChoice:
        if self._wish.num_generated == 0:  # one token was made, because a request makes at least one
            prompt_only = Answer(prompt_logprobs=answer.prompt_logprobs, finish_reason="length")
            answer = prompt_only
        echo = self._echo(place, prompt)
        asked = self._wish.prompt_logprobs
        found = answer.prompt_logprobs
        return CompletionChoice(
            index=number,
            text=echo + answer.text,
            logprobs=self._logprobs(place, prompt, answer),
            finish_reason=finished_by(answer.finish_reason),
            stop_reason=answer.stop,
            token_ids=answer.token_ids if self._wish.return_token_ids else UNSET,
            prompt_token_ids=prompt.token_ids if self._wish.return_token_ids else UNSET,
            prompt_logprobs=UNSET
            if asked is None or found is None
            else prompt_logprob_list(self._tokens, prompt.token_ids, found, asked),
        )

    def _logprobs(self, place: int, prompt: Prompt, answer: Answer) -> CompletionLogprobs | None:
        if self._wish.logprobs is None:
            return None
        if not self._wish.echoes:
            return completion_logprobs(self._tokens, answer.token_ids, answer.logprobs, answer.top_logprobs)
        read = answer.prompt_logprobs or PromptLogprobs((), ())  # one token has none before it
        top = [best[: self._wish.logprobs] for best in read.top]
        return completion_logprobs(
            self._tokens,
            [*prompt.token_ids, *answer.token_ids],
            [None, *read.logprobs, *answer.logprobs],
            [(), *top, *(answer.top_logprobs or [()] * len(answer.token_ids))],
            num_written=len(prompt.token_ids) if isinstance(prompts_of(self._wish)[place], str) else 0,
        )

    def _chunk(
        self, number: int, place: int, prompt: Prompt, sent: _Sent, piece: TextGenerated
    ) -> CompletionChoice | None:
        """None if there is nothing to tell yet."""
        text = "" if self._wish.num_generated == 0 else piece.text
        if not sent.has_begun:
            text = self._echo(place, prompt) + text
        asks_ids = bool(self._wish.return_token_ids)
        tells_tokens = bool(piece.token_ids) and (asks_ids or self._wish.logprobs is not None)
        sent.num_tokens += len(piece.token_ids)
        if not text and not tells_tokens and piece.finish_reason is None:
            return None
        logprobs = None
        if self._wish.logprobs is not None:
            logprobs = completion_logprobs(
                self._tokens, piece.token_ids, piece.logprobs, piece.top_logprobs, offset=sent.num_chars
            )
        chunk = CompletionChoice(
            index=number,
            text=text,
            logprobs=logprobs,
            finish_reason=finished_by(piece.finish_reason),
            stop_reason=piece.stop,
            token_ids=piece.token_ids if asks_ids else UNSET,
            prompt_token_ids=prompt.token_ids if asks_ids and not sent.has_begun else UNSET,
        )
        sent.has_begun = True
        sent.num_chars += len(text)
        return chunk

    def _echo(self, place: int, prompt: Prompt) -> str:
        if not self._wish.echoes:
            return ""
        asked = prompts_of(self._wish)[place]
        return asked if isinstance(asked, str) else self._model.prompter.builder.text.decode(prompt.token_ids)

    def _usage(self, prompts: list[Prompt], answers: list[list[Answer]]) -> CompletionUsage:
        found = total_usage(prompts, answers)
        if self._wish.num_generated == 0:
            return usage(found.prompt_tokens, 0, found.prompt_tokens_details.cached_tokens)
        return found

    def _completion(
        self, choices: list[CompletionChoice], found: CompletionUsage | UnsetType | None
    ) -> Completion:
        return Completion(
            id=self._id, created=self._created, model=self._model.name, choices=choices, usage=found
        )
