"""`/v1/chat/completions`: how a conversation becomes a prompt, and its answers a body or events.

Shapes are `protocols/chat.py`, prompts `actors/text/prompts.py`, the work is `actors/http/answering.py`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from ...engine.models.prompts import Prompt
from ...protocols.chat import (
    AnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    ChunkChoice,
    Conversation,
    Delta,
    chat_params,
    parse_chat,
)
from ...protocols.generation import CompletionUsage, answer_body, finished_by, sse
from ...protocols.messages import TextGenerated
from ..text.generation import Answer, TextModel
from .answering import Answering, UsageSoFar
from .logprobs import chat_logprobs, prompt_logprob_list
from .service import Service
from .text_requests import admission, read_and_parse, text_model


class ChatRoutes:
    """The endpoint. It takes a request and gives a response or raises a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat_completions(self, request: Request) -> Response:
        """Answer a conversation."""
        caller = self._service.caller(request)
        hold = admission(self._service, request, caller)
        with hold():
            wish, conversation = await read_and_parse(self._service, request, parse_chat)
            model = text_model(self._service, wish.model)
            # Before any media are opened: what is wrong with the fields needs no prompt to be seen.
            info = model.prompter.builder.info
            params = chat_params(
                wish, num_room=info.max_context, vocab_size=info.vocab_size, defaults=info.sampling
            )
            answering = Answering(
                model,
                wish,
                params,
                _ChatShape(model, wish, conversation),
                has_limit=wish.wanted_tokens is not None,
                lane=self._service.lane(caller, priority=wish.priority or 0, num_answers=wish.num_choices),
                cache_salt=self._service.cache_salt(caller, wish.cache_salt),
                max_entries=self._service.config.engine.max_logprob_entries,
            )
            return await answering.respond(request, hold)


class _ChatShape:
    """One conversation with its `n` answers."""

    def __init__(self, model: TextModel, wish: ChatRequest, conversation: Conversation) -> None:
        self._model = model
        self._wish = wish
        self._conversation = conversation
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._tokens = model.prompter.builder.tokens

    @asynccontextmanager
    async def prompts(self) -> AsyncIterator[Sequence[Prompt]]:
        """See `Shape`."""
        async with self._model.prompter.chat(self._conversation) as prompt:
            yield (prompt,)

    def body(
        self, prompts: Sequence[Prompt], answers: Sequence[Sequence[Answer]], found: CompletionUsage
    ) -> bytes:
        """See `Shape`."""
        ids = prompts[0].token_ids
        envelope = ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model.name,
            choices=[],
            usage=found,
            prompt_token_ids=ids if self._wish.return_token_ids else UNSET,
            prompt_logprobs=prompt_logprob_list(
                self._tokens, ids, answers[0][0].prompt_logprobs, self._wish.prompt_logprobs
            ),
        )
        return answer_body(envelope, (self._choice(index, answer) for index, answer in enumerate(answers[0])))

    def begin(self, number: int, found: UsageSoFar) -> bytes:
        """A choice begins with the role."""
        choice = ChunkChoice(index=number, delta=Delta(role="assistant", content=""))
        return self._event([choice], found)

    def piece(self, number: int, _: Prompt, piece: TextGenerated, found: UsageSoFar) -> bytes | None:
        """See `Shape`."""
        tells_tokens = bool(piece.token_ids) and (self._wish.logprobs or self._wish.return_token_ids)
        if not (piece.text or tells_tokens or piece.finish_reason is not None):
            return None
        choice = ChunkChoice(
            index=number,
            delta=Delta(content=piece.text) if piece.text else Delta(),
            finish_reason=finished_by(piece.finish_reason),
            logprobs=chat_logprobs(self._tokens, piece.token_ids, piece.logprobs, piece.top_logprobs)
            if self._wish.logprobs
            else None,
            stop_reason=piece.stop if piece.stop is not None else UNSET,
            token_ids=piece.token_ids if self._wish.return_token_ids else UNSET,
        )
        return self._event([choice], found)

    def end(self, found: CompletionUsage) -> bytes:
        """See `Shape`."""
        return self._event([], found)

    def _choice(self, index: int, answer: Answer) -> ChatChoice:
        reason = finished_by(answer.finish_reason)
        assert reason is not None, "an answer that was not finished is an error"
        return ChatChoice(
            index=index,
            message=AnswerMessage(content=answer.text),
            finish_reason=reason,
            logprobs=chat_logprobs(self._tokens, answer.token_ids, answer.logprobs, answer.top_logprobs)
            if self._wish.logprobs
            else None,
            stop_reason=answer.stop,
            token_ids=answer.token_ids if self._wish.return_token_ids else UNSET,
        )

    def _event(self, choices: list[ChunkChoice], found: UsageSoFar) -> bytes:
        name = self._model.name
        return sse(ChatChunk(id=self._id, created=self._created, model=name, choices=choices, usage=found))
