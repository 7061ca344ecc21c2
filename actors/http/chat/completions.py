"""`/v1/completions`, `/tokenize` and `/detokenize`: how bodies become prompts, and answers bodies or events.

Shapes are `protocols/chat/completions.py`, prompts `actors/text/prompts.py`, the work is
`actors/http/chat/answers.py`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from ....engine.models.prompts import Prompt
from ....engine.text.token_text import TokenPlaces
from ....protocols.chat.completions import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    completion_params,
    parse_completion,
    prompts_of,
)
from ....protocols.chat.completions import Prompt as CompletionPrompt
from ....protocols.chat.tokenize import DetokenizeResponse, TokenizeResponse, parse_detokenize, parse_tokenize
from ....protocols.engine.messages import Ending, PromptLogprobs, SamplingParams, TextGenerated
from ....protocols.shared.generation import CompletionUsage, finished_by, sse, stopped_by, usage
from ....protocols.shared.json_chunks import answer_body
from ....protocols.shared.json_file import read_json
from ...runtime.compute_pool import compute
from ...runtime.off_loop import off_loop
from ...text.generation import Answer, TextModel
from ..event_stream import SlicedResponse
from ..service import Service
from .answers import Answering, Shape, UsageSoFar
from .logprobs import completion_logprobs, prompt_logprob_list, reported
from .text_requests import JSON, admission, json_response, read_and_parse, text_model


class CompletionRoutes:
    """The endpoints. They take a request and give a response or raise a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def completions(self, request: Request) -> Response:
        """Continue prompts."""
        caller = self._service.caller(request)
        hold = admission(self._service, request, caller)
        with hold():
            options, requested = await read_and_parse(self._service, request, _parse)
            model = text_model(self._service, options.model)
            info = model.prompter.builder.info
            answering = Answering(
                self._service,
                caller,
                model,
                options,
                completion_params(options, vocab_size=info.vocab_size, defaults=info.sampling),
                _CompletionShape(model, options, requested),
                has_limit=True,
                num_answers=len(requested) * options.num_choices,
            )
            return await answering.respond(request, hold)

    async def tokenize(self, request: Request) -> Response:
        """A text's ids as `completions` would read it, or a conversation's as `chat_completions` would."""
        caller = self._service.caller(request)
        with admission(self._service, request, caller)():
            options, requested = await read_and_parse(self._service, request, parse_tokenize)
            model = text_model(self._service, options.model)
            prompter = model.prompter.counting
            if isinstance(requested, str):
                with_start = options.add_special_tokens is not False
                prompt = await prompter.completion(requested, with_start=with_start)
            else:
                scope, fetches = self._service.cache_salt(caller, None), self._service.lane(caller).caller
                async with prompter.chat(requested, scope=scope, caller=fetches) as found:
                    prompt = found
            tokens = model.prompter.builder.tokens

            def render() -> bytes:
                names = (
                    [tokens.piece(each) for each in prompt.token_ids] if options.return_token_strs else None
                )
                answer = TokenizeResponse(
                    count=len(prompt.token_ids),
                    max_model_len=model.prompter.builder.info.max_context,
                    tokens=prompt.token_ids,
                    token_strs=names,
                )
                return msgspec.json.encode(answer)

            return SlicedResponse(await off_loop(render, size=len(prompt.token_ids)), media_type=JSON)

    async def tokenizer_info(self, request: Request) -> Response:
        """The checkpoint's `tokenizer_config.json`, with the chat template that is used."""
        with admission(self._service, request, self._service.caller(request))():
            builder = text_model(self._service, request.query_params.get("model")).prompter.builder
            path = builder.info.folder / "tokenizer_config.json"
            config = await compute(partial(_read_config, path))
        return json_response(config | {"chat_template": builder.text.chat_template})

    async def detokenize(self, request: Request) -> Response:
        """The text of ids."""
        with admission(self._service, request, self._service.caller(request))():
            options = await read_and_parse(self._service, request, parse_detokenize)
            model = text_model(self._service, options.model)
            prompt = await model.prompter.counting.completion(options.tokens, param="tokens")
            text = await model.prompter.decode(prompt.token_ids)
        return SlicedResponse(msgspec.json.encode(DetokenizeResponse(text)), media_type=JSON)


def _read_config(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _parse(body: bytes) -> tuple[CompletionRequest, tuple[CompletionPrompt, ...]]:
    options = parse_completion(body)
    return options, prompts_of(options)


@dataclass(slots=True)
class _Sent:
    """What a choice of a stream has sent so far."""

    places: TokenPlaces
    has_begun: bool = False


class _CompletionShape(Shape):
    """One request: its prompts, each answered `n` times, numbered through."""

    def __init__(
        self, model: TextModel, options: CompletionRequest, requested: Sequence[CompletionPrompt]
    ) -> None:
        self._model = model
        self._options = options
        self._requested = requested
        self._echoes = [""] * len(requested)
        self._id = f"cmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._tokens = tokens = model.prompter.builder.tokens
        self._sent = [_Sent(TokenPlaces(tokens)) for _ in range(len(requested) * options.num_choices)]

    @asynccontextmanager
    async def prompts(self, _: str, __: str) -> AsyncIterator[Sequence[Prompt]]:
        is_one = isinstance(self._options.prompt, str) or isinstance(self._options.prompt[0], int)
        prompter, found = self._model.prompter, []
        for place, requested in enumerate(self._requested):
            param = "prompt" if is_one else f"prompt[{place}]"
            prompt = await prompter.completion(
                requested,
                param=param,
                with_start=self._options.add_special_tokens is not False,
                most=self._most_tokens,
            )
            found.append(prompt)
            if self._options.echoes:
                self._echoes[place] = (
                    requested
                    if self._is_as_written(requested)
                    else await prompter.decode(prompt.token_ids, shows_special=self._options.shows_special)
                )
        yield found

    @property
    def _most_tokens(self) -> int | None:
        """Of a prompt, as asked for."""
        most = self._options.truncate_prompt_tokens
        if most == -1:
            return max(1, self._model.prompter.builder.info.max_context - max(1, self._options.num_generated))
        return most

    def _is_as_written(self, requested: CompletionPrompt) -> TypeGuard[str]:
        """Whether a prompt's echo is what the client wrote."""
        return isinstance(requested, str) and self._options.truncate_prompt_tokens is None

    def fit(self, _: Prompt, params: SamplingParams) -> SamplingParams:
        if not self._options.shows_special:
            return params
        return msgspec.structs.replace(params, shown=self._model.prompter.builder.text.special_tokens)

    def body(
        self, prompts: Sequence[Prompt], answers: Sequence[Sequence[Answer]], found: CompletionUsage
    ) -> bytes:
        choices = (
            self._choice(place * self._options.num_choices + index, place, prompt, answer)
            for place, (prompt, group) in enumerate(zip(prompts, answers, strict=True))
            for index, answer in enumerate(group)
        )
        return answer_body(self._completion([], found), choices)

    def begin(self, number: int, found: UsageSoFar) -> None:
        """A choice begins with its first text."""

    def piece(self, number: int, prompt: Prompt, piece: TextGenerated, found: UsageSoFar) -> bytes | None:
        chunk = self._chunk(number, prompt, piece)
        return None if chunk is None else sse(self._completion([chunk], found))

    def end(self, found: CompletionUsage) -> bytes:
        return sse(self._completion([], found))

    def _choice(self, number: int, place: int, prompt: Prompt, answer: Answer) -> CompletionChoice:
        if self._options.num_generated == 0:  # one token was made, because a request makes at least one
            answer = Answer(prompt_logprobs=answer.prompt_logprobs, finish_reason="length")
        tokens = self._reported(answer)
        return CompletionChoice(
            index=number,
            text=self._echoes[place] + answer.text,
            logprobs=self._logprobs(place, prompt, tokens, answer.prompt_logprobs),
            finish_reason=finished_by(answer.finish_reason),
            stop_reason=stopped_by(answer.stop, answer.stop_token_id, self._options.stop_token_ids),
            token_ids=tokens.token_ids if self._options.return_token_ids else None,
            prompt_token_ids=prompt.token_ids if self._options.return_token_ids else None,
            prompt_logprobs=prompt_logprob_list(
                self._tokens, prompt.token_ids, answer.prompt_logprobs, self._options.prompt_logprobs
            ),
        )

    def _reported(self, found: Answer | TextGenerated) -> Answer | TextGenerated | Ending:
        return reported(found, with_ending=bool(self._options.return_token_ids))

    def _logprobs(
        self,
        place: int,
        prompt: Prompt,
        answer: Answer | TextGenerated | Ending,
        read: PromptLogprobs | None,
    ) -> CompletionLogprobs | None:
        if self._options.logprobs is None:
            return None
        if not self._options.echoes:
            return completion_logprobs(
                self._tokens,
                answer.token_ids,
                answer.logprobs,
                answer.top_logprobs,
                shows_special=self._options.shows_special,
                is_numbered=self._options.numbers_tokens,
            )
        read = read or PromptLogprobs((), (), ())  # one token has none before it
        top = [best[: self._options.logprobs] for best in read.top]
        return completion_logprobs(
            self._tokens,
            [*prompt.token_ids, *answer.token_ids],
            [None, *read.logprobs, *answer.logprobs],
            [(), *top, *(answer.top_logprobs or [()] * len(answer.token_ids))],
            num_written=len(prompt.token_ids) if self._is_as_written(self._requested[place]) else 0,
            shows_special=self._options.shows_special,
            is_numbered=self._options.numbers_tokens,
        )

    def _chunk(self, number: int, prompt: Prompt, piece: TextGenerated) -> CompletionChoice | None:
        """None if there is nothing to tell yet."""
        sent = self._sent[number]
        if self._options.num_generated == 0:  # see `_choice`
            if piece.finish_reason is None:
                return None
            piece = TextGenerated(piece.request_id, (), finish_reason="length")
        text = piece.text
        if not sent.has_begun:
            text = self._echoes[number // self._options.num_choices] + text
        returns_ids, tokens = bool(self._options.return_token_ids), self._reported(piece)
        has_token_fields = bool(tokens.token_ids) and (returns_ids or self._options.logprobs is not None)
        if not text and not has_token_fields and piece.finish_reason is None:
            return None
        logprobs = None
        if self._options.logprobs is not None:
            logprobs = completion_logprobs(
                self._tokens,
                tokens.token_ids,
                tokens.logprobs,
                tokens.top_logprobs,
                places=sent.places,
                shows_special=self._options.shows_special,
                is_numbered=self._options.numbers_tokens,
            )
        chunk = CompletionChoice(
            index=number,
            text=text,
            logprobs=logprobs,
            finish_reason=finished_by(piece.finish_reason),
            stop_reason=stopped_by(piece.stop, piece.stop_token_id, self._options.stop_token_ids),
            token_ids=tokens.token_ids if returns_ids else UNSET,
            prompt_token_ids=prompt.token_ids if returns_ids and not sent.has_begun else UNSET,
        )
        sent.has_begun = True
        return chunk

    def _completion(self, choices: list[CompletionChoice], found: UsageSoFar) -> Completion:
        if self._options.num_generated == 0 and isinstance(found, CompletionUsage):
            found = usage(found.prompt_tokens, 0, found.prompt_tokens_details.cached_tokens)
        return Completion(
            id=self._id, created=self._created, model=self._model.name, choices=choices, usage=found
        )
