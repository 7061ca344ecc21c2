"""`/v1/chat/completions`: how a conversation becomes a prompt, and its answers a body or events.

Shapes are `protocols/chat/request.py`, prompts `actors/text/prompts.py`, the work is
`actors/http/chat/answers.py`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from ....engine.models.prompts import Prompt
from ....engine.text.tools.machine import AnswerMachine, read_more, read_whole
from ....protocols.chat.request import ChatRequest, Conversation, parse_chat
from ....protocols.chat.response import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChoiceLogprobs,
    ChunkChoice,
    Delta,
)
from ....protocols.chat.stream_events import delta_of, finished_chat, message_of
from ....protocols.engine.messages import Ending, SamplingParams, TextGenerated
from ....protocols.shared.generation import CompletionTokensDetails, CompletionUsage, sse, stopped_by
from ....protocols.shared.json_chunks import answer_body
from ....protocols.shared.unsupported_fields import answered_tier
from ...text.answer_reader import AnswerReading
from ...text.generation import Answer, TextModel
from ...text.reasoning_count import ReasoningCount
from ..service import Service
from .answers import Answering, Shape, UsageSoFar
from .logprobs import chat_logprobs, prompt_logprob_list, reported
from .text_requests import admission, chat_params_for, read_and_parse, text_model


class ChatRoutes:
    """The endpoint. It takes a request and gives a response or raises a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat_completions(self, request: Request) -> Response:
        """Answer a conversation."""
        caller = self._service.caller(request)
        hold = admission(self._service, request, caller)
        with hold():
            options, conversation = await read_and_parse(self._service, request, parse_chat)
            model = text_model(self._service, options.model)
            answering = Answering(
                self._service,
                caller,
                model,
                options,
                chat_params_for(model, options),
                _ChatShape(model, options, conversation),
                has_limit=options.wanted_tokens is not None,
                num_answers=options.num_choices,
                names=(("logprobs", "top_logprobs"),) if options.top_logprobs else (),
            )
            return await answering.respond(request, hold)


_NOTHING: Final = Delta()


class _Streamed:
    """One choice of a stream: what reads it, and whether it has calls."""

    def __init__(self, machine: AnswerMachine | None, reasoning_count: ReasoningCount) -> None:
        self._machine = machine
        self.has_calls = False
        self.reasoning_count = reasoning_count

    def delta(self, piece: TextGenerated, *, shows_reasoning: bool) -> Delta:
        """What a piece adds to the message."""
        if self._machine is None:
            return Delta(content=piece.text) if piece.text else _NOTHING
        self.reasoning_count.push(piece.token_ids)
        events = read_more(self._machine, piece.text, is_last=piece.finish_reason is not None)
        if not events:
            return _NOTHING
        delta = delta_of(events, shows_reasoning=shows_reasoning)
        self.has_calls |= delta.tool_calls is not UNSET
        return delta


class _ChatShape(Shape):
    """One conversation with its `n` answers."""

    def __init__(self, model: TextModel, options: ChatRequest, conversation: Conversation) -> None:
        self._model = model
        self._options = options
        self._conversation = conversation
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._tokens = model.prompter.builder.tokens
        self._reading = AnswerReading(
            model.prompter.builder, conversation, shows_special=options.shows_special
        )
        self._choices: dict[int, _Streamed] = {}
        self._tier = answered_tier(options.service_tier)

    @asynccontextmanager
    async def prompts(self, scope: str, caller: str) -> AsyncIterator[Sequence[Prompt]]:
        async with self._model.prompter.chat(self._conversation, scope=scope, caller=caller) as prompt:
            yield (prompt,)

    def fit(self, prompt: Prompt, params: SamplingParams) -> SamplingParams:
        return self._reading.fit(prompt, params)

    def body(
        self, prompts: Sequence[Prompt], answers: Sequence[Sequence[Answer]], found: CompletionUsage
    ) -> bytes:
        ids = prompts[0].token_ids
        if self._reading.may_think:
            found = _counted(
                found, sum(self._reading.num_reasoning_tokens(each.token_ids) for each in answers[0])
            )
        envelope = ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model.name,
            choices=[],
            usage=found,
            service_tier=self._tier,
            prompt_token_ids=ids if self._options.return_token_ids else None,
            prompt_logprobs=prompt_logprob_list(
                self._tokens, ids, answers[0][0].prompt_logprobs, self._options.prompt_logprobs
            ),
        )
        return answer_body(envelope, (self._choice(index, answer) for index, answer in enumerate(answers[0])))

    def begin(self, number: int, found: UsageSoFar) -> bytes:
        """A choice begins with the role."""
        self._choices[number] = _Streamed(self._reading.machine(), self._reading.count())
        choice = ChunkChoice(index=number, delta=Delta(role="assistant", content=""))
        return self._event([choice], found)

    def piece(self, number: int, _: Prompt, piece: TextGenerated, found: UsageSoFar) -> bytes | None:
        streamed = self._choices[number]
        delta = streamed.delta(piece, shows_reasoning=self._options.shows_reasoning)
        tokens = self._reported(piece)
        has_token_fields = bool(tokens.token_ids) and (
            self._options.logprobs or self._options.return_token_ids
        )
        if delta == _NOTHING and not has_token_fields and piece.finish_reason is None:
            return None
        stopped = stopped_by(piece.stop, piece.stop_token_id, self._options.stop_token_ids)
        choice = ChunkChoice(
            index=number,
            delta=delta,
            finish_reason=finished_chat(piece.finish_reason, has_calls=streamed.has_calls),
            logprobs=self._logprobs(tokens) if self._options.logprobs else None,
            stop_reason=UNSET if stopped is None else stopped,
            token_ids=tokens.token_ids if self._options.return_token_ids else UNSET,
        )
        return self._event([choice], found)

    def end(self, found: CompletionUsage) -> bytes:
        if self._reading.may_think:
            found = _counted(found, sum(each.reasoning_count.num for each in self._choices.values()))
        return self._event([], found)

    def _choice(self, index: int, answer: Answer) -> ChatChoice:
        events = read_whole(self._reading.machine(), answer.text)
        message = message_of(events, shows_reasoning=self._options.shows_reasoning)
        reason = finished_chat(answer.finish_reason, has_calls=message.tool_calls is not UNSET)
        assert reason is not None, "an answer that was not finished is an error"
        tokens = self._reported(answer)
        return ChatChoice(
            index=index,
            message=message,
            finish_reason=reason,
            logprobs=self._logprobs(tokens) if self._options.logprobs else None,
            stop_reason=stopped_by(answer.stop, answer.stop_token_id, self._options.stop_token_ids),
            token_ids=tokens.token_ids if self._options.return_token_ids else None,
        )

    def _reported(self, found: Answer | TextGenerated) -> Answer | TextGenerated | Ending:
        return reported(found, with_ending=bool(self._options.return_token_ids))

    def _logprobs(self, found: Answer | TextGenerated | Ending) -> ChoiceLogprobs:
        return chat_logprobs(
            self._tokens,
            found.token_ids,
            found.logprobs,
            found.top_logprobs,
            is_numbered=self._options.numbers_tokens,
        )

    def _event(self, choices: list[ChunkChoice], found: UsageSoFar) -> bytes:
        return sse(
            ChatChunk(
                id=self._id,
                created=self._created,
                model=self._model.name,
                choices=choices,
                usage=found,
                service_tier=self._tier,
            )
        )


def _counted(found: CompletionUsage, num_reasoning_tokens: int) -> CompletionUsage:
    """Usage with the number of reasoning tokens."""
    details = found.completion_tokens_details or CompletionTokensDetails()
    counted = msgspec.structs.replace(details, reasoning_tokens=num_reasoning_tokens)
    return msgspec.structs.replace(found, completion_tokens_details=counted)
