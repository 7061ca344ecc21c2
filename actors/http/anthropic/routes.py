"""`/v1/messages` and its token count: how content blocks become a prompt, and answers blocks or events.

Requests are `protocols/anthropic/request.py`, what is written `protocols/anthropic/writer.py`; the work is
`actors/http/chat/answers.py`. Errors have this API's own body (`Gate` in `actors/http/routes.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ....engine.models.prompts import Prompt
from ....engine.text.tools.machine import AnswerMachine, read_more, read_whole
from ....protocols.anthropic.output_config import FIELD_NAMES
from ....protocols.anthropic.request import CheckedMessage, parse_message, parse_message_count
from ....protocols.anthropic.response import MessageAnswer, MessageTokenCount, MessageUsage
from ....protocols.anthropic.writer import MessageWriter
from ....protocols.engine.messages import SamplingParams, TextGenerated
from ....protocols.shared.generation import CompletionUsage, named_sse
from ...text.answer_reader import AnswerReading
from ...text.generation import Answer, TextModel
from ..chat.answers import Answering, Shape, UsageSoFar
from ..chat.text_requests import admission, chat_params_for, json_response, read_and_parse, text_model
from ..service import Service

_NOTHING: Final = MessageUsage(input_tokens=0, output_tokens=0)


class MessageRoutes:
    """The endpoints. They take a request and give a response or raise a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> Response:
        """Answer a conversation."""
        service = self._service
        caller = service.caller(request)
        hold = admission(service, request, caller)
        with hold():
            parsed = await read_and_parse(service, request, parse_message)
            model = text_model(service, parsed.request.model)
            answering = Answering(
                service,
                caller,
                model,
                parsed.chat,
                chat_params_for(model, parsed.chat, FIELD_NAMES),
                _MessageShape(model, parsed),
                has_limit=True,
                names=FIELD_NAMES,
            )
            return await answering.respond(request, hold)

    async def count_tokens(self, request: Request) -> Response:
        """How long the prompt of a conversation is."""
        service = self._service
        with admission(service, request, service.caller(request))():
            parsed = await read_and_parse(service, request, parse_message_count)
            prompter = text_model(service, parsed.request.model).prompter.counting
            AnswerReading(prompter.builder, parsed.conversation)
            caller = service.lane(service.caller(request)).caller
            async with prompter.chat(parsed.conversation, caller=caller) as prompt:
                return json_response(MessageTokenCount(len(prompt.token_ids)))


class _MessageShape(Shape):
    """One conversation with its one answer."""

    def __init__(self, model: TextModel, parsed: CheckedMessage) -> None:
        self._model = model
        self._parsed = parsed
        self._reading = AnswerReading(model.prompter.builder, parsed.conversation)
        answer = MessageAnswer(
            id=f"msg_{secrets.token_hex(12)}", model=model.name, content=[], usage=_NOTHING
        )
        self._writer = MessageWriter(answer)
        self._machine: AnswerMachine | None = None
        self._num_prompt = 0
        self._reason: str | None = None
        self._stop: str | None = None

    @asynccontextmanager
    async def prompts(self, scope: str, caller: str) -> AsyncIterator[Sequence[Prompt]]:
        conversation = self._parsed.conversation
        async with self._model.prompter.chat(conversation, scope=scope, caller=caller) as prompt:
            yield (prompt,)

    def fit(self, prompt: Prompt, params: SamplingParams) -> SamplingParams:
        self._num_prompt = len(prompt.token_ids)
        fit = self._reading.fit(prompt, params)
        self._machine = self._reading.machine()
        return fit

    def body(self, _: Sequence[Prompt], answers: Sequence[Sequence[Answer]], found: CompletionUsage) -> bytes:
        answer = answers[0][0]
        self._writer.begin(self._num_prompt)
        self._writer.add(read_whole(self._machine, answer.text))
        self._writer.finish(_usage(found), answer.finish_reason, answer.stop)
        return msgspec.json.encode(self._writer.message)

    def begin(self, _: int, __: UsageSoFar) -> bytes:
        return named_sse(*self._writer.begin(self._num_prompt))

    def piece(self, _: int, __: Prompt, piece: TextGenerated, ___: UsageSoFar) -> bytes | None:
        self._reason, self._stop = piece.finish_reason, piece.stop
        events = read_more(self._machine, piece.text, is_last=piece.finish_reason is not None)
        return named_sse(*self._writer.add(events)) or None

    def end(self, found: CompletionUsage) -> bytes:
        return named_sse(*self._writer.finish(_usage(found), self._reason, self._stop))


def _usage(found: CompletionUsage) -> MessageUsage:
    cached = found.prompt_tokens_details.cached_tokens
    return MessageUsage(
        input_tokens=found.prompt_tokens - cached,
        output_tokens=found.completion_tokens,
        cache_read_input_tokens=cached,
    )
