"""`/v1/chat/completions`: a body in, an answer or an event stream out.

Shapes are `protocols/chat.py`, prompts `actors/text/prompts.py`, the work is `actors/text/generation.py`.
"""

from __future__ import annotations

import secrets
import time

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ...engine.models.prompts import Prompt
from ...protocols.chat import (
    AnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    ChoiceLogprobs,
    ChunkChoice,
    Conversation,
    Delta,
    chat_body,
    chat_event,
    chat_params,
    parse_chat,
)
from ...protocols.generation import (
    CompletionUsage,
    PromptLogprobList,
    choice_params,
    finished_by,
    fitted,
    usage,
)
from ...protocols.messages import Lane, TextGenerated
from ..text.generation import Answer, OnAccepted, OnPiece, TextModel, answer_all
from .event_stream import EventStream, Put, unless_gone
from .logprobs import chat_logprobs, prompt_logprob_list
from .service import Service, caller_of
from .text_requests import JSON, admission, cache_salt, read_and_parse, text_model, total_usage


class ChatRoutes:
    """The endpoint. It takes a request and gives a response or raises a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat_completions(self, request: Request) -> Response:
        """Answer a conversation."""
        hold = admission(self._service, request)
        with hold():
            wish, conversation = await read_and_parse(self._service, request, parse_chat)
            lane = self._service.lane(
                caller_of(request), priority=wish.priority or 0, num_answers=wish.num_choices
            )
            salt = cache_salt(self._service, request, wish.cache_salt)
            job = _Job(text_model(self._service, wish.model), wish, conversation, lane, salt)

            async def answer() -> Response:
                return Response(await job.body(), media_type=JSON)

            if wish.streams:
                return EventStream(job.stream, hold)
            return await unless_gone(request, answer)


class _Job:
    """One request with its `n` answers."""

    def __init__(
        self, model: TextModel, wish: ChatRequest, conversation: Conversation, lane: Lane, salt: str
    ) -> None:
        self._model = model
        self._lane = lane
        self._salt = salt
        self._wish = wish
        self._conversation = conversation
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._tokens = model.prompter.builder.tokens
        builder = model.prompter.builder
        # Before any media are opened: what is wrong with the fields needs no prompt to be seen.
        self._params = chat_params(
            wish,
            num_room=builder.info.max_context,
            vocab_size=builder.info.vocab_size,
            defaults=builder.info.sampling,
        )

    async def body(self) -> bytes:
        """The whole answer."""
        prompt = await self._model.prompter.chat(self._conversation)
        answers = await self._run(prompt, None)
        return chat_body(
            ChatCompletion(
                id=self._id,
                created=self._created,
                model=self._model.name,
                choices=[self._choice(index, answer) for index, answer in enumerate(answers)],
                usage=total_usage([prompt], [answers]),
                prompt_token_ids=prompt.token_ids if self._wish.return_token_ids else UNSET,
                prompt_logprobs=self._prompt_logprobs(prompt, answers[0]),
            )
        )

    async def stream(self, put: Put) -> None:
        """Chunks as they come. Each choice begins with the role."""
        prompt = await self._model.prompter.chat(self._conversation)
        num_prompt, num_cached = len(prompt.token_ids), 0
        num_tokens = [0] * self._wish.num_choices

        def send(choice: ChunkChoice) -> None:
            so_far: CompletionUsage | UnsetType | None = None if self._wish.includes_usage else UNSET
            if self._wish.repeats_usage:
                so_far = usage(num_prompt, num_tokens[choice.index], num_cached)
            put(chat_event(self._chunk([choice], so_far)))

        def on_accepted(index: int) -> None:
            send(ChunkChoice(index=index, delta=Delta(role="assistant", content="")))

        def on_piece(index: int, piece: TextGenerated) -> None:
            nonlocal num_cached
            num_cached = max(num_cached, piece.num_cached)
            num_tokens[index] += len(piece.token_ids)
            tells_tokens = bool(piece.token_ids) and (self._wish.logprobs or self._wish.return_token_ids)
            if piece.text or tells_tokens or piece.finish_reason is not None:
                send(self._piece(index, piece))

        answers = await self._run(prompt, on_piece, on_accepted)
        if self._wish.includes_usage:
            put(chat_event(self._chunk([], total_usage([prompt], [answers]))))

    async def _run(
        self, prompt: Prompt, on_piece: OnPiece | None, on_accepted: OnAccepted | None = None
    ) -> list[Answer]:
        params = fitted(self._params, self._model.prompter.builder.num_room(prompt))
        return await answer_all(
            self._model,
            prompt,
            [choice_params(params, index) for index in range(self._wish.num_choices)],
            lane=self._lane,
            cache_salt=self._salt,
            on_accepted=on_accepted,
            on_piece=on_piece,
        )

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

    def _piece(self, index: int, piece: TextGenerated) -> ChunkChoice:
        logprobs: ChoiceLogprobs | None = None
        if self._wish.logprobs:
            logprobs = chat_logprobs(self._tokens, piece.token_ids, piece.logprobs, piece.top_logprobs)
        return ChunkChoice(
            index=index,
            delta=Delta(content=piece.text) if piece.text else Delta(),
            finish_reason=finished_by(piece.finish_reason),
            logprobs=logprobs,
            stop_reason=piece.stop if piece.stop is not None else UNSET,
            token_ids=piece.token_ids if self._wish.return_token_ids else UNSET,
        )

    def _chunk(self, choices: list[ChunkChoice], found: CompletionUsage | UnsetType | None) -> ChatChunk:
        return ChatChunk(
            id=self._id, created=self._created, model=self._model.name, choices=choices, usage=found
        )

    def _prompt_logprobs(self, prompt: Prompt, answer: Answer) -> PromptLogprobList | UnsetType:
        asked, found = self._wish.prompt_logprobs, answer.prompt_logprobs
        if asked is None or found is None:
            return UNSET
        return prompt_logprob_list(self._tokens, prompt.token_ids, found, asked)
