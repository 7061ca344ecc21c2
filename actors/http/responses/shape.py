"""One request of `/v1/responses`: its prompt, and its answer as a response, whole or in events (a `Shape`).

Requests are `protocols/responses/request.py`, what is written `protocols/responses/writer.py`. Read next:
`actors/http/responses/routes.py`, whose routes make these.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

import msgspec

from ....engine.models.prompts import Prompt
from ....engine.text.tools.machine import AnswerMachine, read_more, read_whole
from ....protocols.chat.assistant_turn import AssistantTurn, call_result
from ....protocols.chat.content import ChatMessage, read_object
from ....protocols.chat.request import Conversation
from ....protocols.chat.response import TokenLogprob
from ....protocols.engine.messages import SamplingParams, TextGenerated
from ....protocols.errors import BadRequestError, SensoriumError
from ....protocols.responses.input_items import continued
from ....protocols.responses.item_ids import call_id_of, new_response_id
from ....protocols.responses.mcp_results import CallOutcome
from ....protocols.responses.mcp_tools import HostedTool
from ....protocols.responses.output_items import (
    FunctionCall,
    InputTokensDetails,
    McpApprovalRequest,
    McpCall,
    OutputItem,
    OutputMessage,
    OutputTokensDetails,
    Reasoning,
    ResponseFault,
    ResponseObject,
    ResponseUsage,
)
from ....protocols.responses.request import CheckedResponse
from ....protocols.responses.writer import ResponseWriter
from ....protocols.shared.generation import CompletionUsage, named_sse
from ....realtime.dialogue.truncation import answer_room
from ...callers import Caller
from ...text.answer_reader import AnswerReading
from ...text.generation import Answer, TextModel
from ..chat.answers import Shape, UsageSoFar
from ..chat.logprobs import chat_logprobs
from ..chat.text_tokens import TextTokens
from ..service import Service
from .row_codec import KeptResponse

_BEFORE: Final = "previous_response_id"


class ResponseShape(Shape):
    """One conversation with its one answer."""

    def __init__(
        self,
        service: Service,
        model: TextModel,
        parsed: CheckedResponse,
        params: SamplingParams,
        caller: Caller,
        before: KeptResponse | None,
        *,
        within: object = None,
        is_warm_up: bool = False,
    ) -> None:
        """`before`: what it goes on from. `within`: the connection that may go on from it though it is not to
        be kept. `is_warm_up`: the prompt is computed, and nothing is said."""
        self._service = service
        self._model = model
        self._parsed = parsed
        self._caller = caller
        self._within = None if parsed.request.is_kept else within
        self._is_warm_up = is_warm_up
        self._messages = continued(() if before is None else before.messages, parsed.read.messages)
        """The conversation without instructions, after `prompts` with the files that it names by address, and
        after each round with what was said and called in it."""
        self.listed = (*(() if before is None else before.listed), *parsed.read.listed)
        """What MCP servers have told of their tools in this conversation."""
        self.hosted: Mapping[str, HostedTool] = {}
        """What calls are of MCP servers' tools."""
        self._conversation: Conversation
        self._reading: AnswerReading
        self.begin_round(is_first=not parsed.servers)  # where there are servers, this checks the messages
        options = parsed.request
        self._has_logprobs = options.wants_logprobs
        self.writer = ResponseWriter(_begun(model.name, parsed, params, service.tag))
        self._machine: AnswerMachine | None = None
        self._text_tokens: TextTokens
        self.has_begun = False
        """Its first events were told."""
        self._reasoning_count = self._reading.count()
        self._num_reasoning = 0
        """In rounds that are over."""
        self._num_reported = 0
        """Items of which `_messages` tells."""
        self.is_cut = False

    @property
    def response(self) -> ResponseObject:
        """As far as it is there."""
        return self.writer.response

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes to it."""
        return self.response.status in ("completed", "incomplete", "failed", "cancelled")

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The conversation with its answer, without instructions."""
        return (*self._messages, *messages_of(self.writer.items[self._num_reported :], self.hosted))

    @property
    def waits_for_client(self) -> bool:
        """Whether a call was made in this round that a client has to answer, or to agree to."""
        new_items = self.writer.items[self._num_reported :]
        return any(isinstance(item, FunctionCall | McpApprovalRequest) for item in new_items)

    def begin_round(self, *, is_first: bool, may_call: bool = True) -> None:
        """The conversation as far as it is there is answered next; `is_first` and `may_call` as in
        `CheckedResponse.conversation`. Raises BadRequestError."""
        parsed = self._parsed
        self._conversation = parsed.conversation(
            self._messages, self.hosted, is_first=is_first, may_call=may_call
        )
        self._reading = AnswerReading(
            self._model.prompter.builder, self._conversation, shows_special=parsed.chat.shows_special
        )

    def end_round(self) -> None:
        """What was said and called belongs to the conversation."""
        self._messages = self.messages
        self._num_reported = len(self.writer.items)

    def set_result(self, place: int, text: str) -> None:
        """What a call came to that the request has approved, at its place in the request's messages."""
        messages = list(self._messages)
        at = len(messages) - len(self._parsed.read.messages) + place
        messages[at] = replace(messages[at], content=text)
        self._messages = tuple(messages)
        self._num_reported = len(self.writer.items)

    @asynccontextmanager
    async def prompts(self, scope: str, caller: str) -> AsyncIterator[Sequence[Prompt]]:
        prompter = self._model.prompter
        async with prompter.fetched(self._conversation, caller=caller) as whole, AsyncExitStack() as opened:
            self._messages = whole.messages[len(whole.messages) - len(self._messages) :]

            async def build(messages: tuple[ChatMessage, ...]) -> Prompt:
                conversation = replace(whole, messages=messages)
                return await opened.enter_async_context(
                    prompter.read(conversation, scope=scope, caller=caller)
                )

            if self._parsed.request.truncation != "auto":
                yield (await build(whole.messages),)
                return
            most = prompter.builder.info.max_context
            room = answer_room(self._parsed.request.max_output_tokens, most)
            *longer, newest = truncations(whole.messages)
            for messages in longer:
                try:
                    prompt = await build(messages)
                except BadRequestError as error:
                    if error.code != "context_length_exceeded":
                        raise
                else:
                    if prompter.builder.num_room(prompt) >= room:
                        yield (prompt,)
                        return
                await opened.aclose()
            yield (await build(newest),)

    def fit(self, prompt: Prompt, params: SamplingParams) -> SamplingParams:
        fit = self._reading.fit(prompt, params)
        self._machine = self._reading.machine(traces=self._has_logprobs)
        self._text_tokens = TextTokens(self._model.prompter.builder.tokens, self._reading.shown_ids)
        self._num_reasoning += self._reasoning_count.num
        self._reasoning_count = self._reading.count()
        return msgspec.structs.replace(fit, max_tokens=1) if self._is_warm_up else fit

    def body(self, _: Sequence[Prompt], answers: Sequence[Sequence[Answer]], found: CompletionUsage) -> bytes:
        answer = answers[0][0]
        self.writer.begin()
        self._reasoning_count.push(answer.token_ids)
        self.writer.add(read_whole(self._machine, answer.text), self._logprobs(answer))
        self.writer.finish(self._usage(found), is_cut=answer.finish_reason == "length", now=int(time.time()))
        return msgspec.json.encode(self.response)

    def begin(self, _: int, __: UsageSoFar) -> bytes | None:
        return None if self.has_begun else self.begun()

    def begun(self) -> bytes:
        """The first events, which in the background come before there is a place in the engine's queue."""
        self.has_begun = True
        return named_sse(*self.writer.begin())

    def piece(self, _: int, __: Prompt, piece: TextGenerated, ___: UsageSoFar) -> bytes | None:
        if self._is_warm_up:
            return None
        self._reasoning_count.push(piece.token_ids)
        self.is_cut = piece.finish_reason == "length"
        events = read_more(self._machine, piece.text, is_last=piece.finish_reason is not None)
        return named_sse(*self.writer.add(events, self._logprobs(piece))) or None

    def end(self, found: CompletionUsage) -> bytes:
        final_events = self.writer.finish(self._usage(found), is_cut=self.is_cut, now=int(time.time()))
        if self._parsed.request.stream:
            self._keep()
        return named_sse(*final_events)

    def fail(self, error: SensoriumError) -> bytes | None:
        final_events = self.writer.fail(ResponseFault(_fault_code(error.status), error.message))
        if not self.has_begun:
            return None
        self._keep()
        return named_sse(*final_events)

    def cancel(self) -> bytes:
        """The last events of one that its client has given up."""
        return named_sse(*self.writer.cancel())

    async def settle(self) -> None:
        """Keep it, if it is to be: its client has all of it when that is done."""
        if not self._parsed.request.stream:
            self._keep()
        await self._service.responses.saved(self.response.id)

    def _keep(self) -> None:
        request = self._parsed.request
        if not request.background and (request.is_kept or self._within is not None):
            self._service.responses.put(self.kept())

    def kept(self) -> KeptResponse:
        """What is kept of it."""
        items, response = self._parsed.items, self.response
        return KeptResponse(self._caller, response, items, self.messages, self.listed, self._within)

    def _logprobs(self, piece: TextGenerated | Answer) -> list[list[TokenLogprob]]:
        """Of each text that the machine has found in the piece, or of all of it where there is no machine."""
        if not self._has_logprobs:
            return []
        tokens = self._model.prompter.builder.tokens
        if self._machine is None:
            return [chat_logprobs(tokens, piece.token_ids, piece.logprobs, piece.top_logprobs).content]
        self._text_tokens.push(piece.token_ids, piece.logprobs, piece.top_logprobs)
        taken = map(self._text_tokens.take, self._machine.take_spans())
        return [
            chat_logprobs(tokens, each.token_ids, each.logprobs, each.top_logprobs).content for each in taken
        ]

    def _usage(self, found: CompletionUsage) -> ResponseUsage:
        num_written = 0 if self._is_warm_up else found.completion_tokens
        return ResponseUsage(
            input_tokens=found.prompt_tokens,
            input_tokens_details=InputTokensDetails(found.prompt_tokens_details.cached_tokens),
            output_tokens=num_written,
            output_tokens_details=OutputTokensDetails(self._num_reasoning + self._reasoning_count.num),
            total_tokens=found.prompt_tokens + num_written,
        )


def _fault_code(status: int) -> str:
    """Whose fault it is, in the words this API has for it."""
    if status < 500:
        return "invalid_prompt"
    return "rate_limit_exceeded" if status == 503 else "server_error"


def _begun(model: str, parsed: CheckedResponse, params: SamplingParams, tag: str) -> ResponseObject:
    """A response of which nothing is there yet."""
    options, echoed = parsed.request, parsed.echoed
    return ResponseObject(
        id=new_response_id(tag),
        created_at=int(time.time()),
        status="queued",
        model=model,
        output=[],
        parallel_tool_calls=options.parallel_tool_calls is not False,
        tool_choice=echoed.tool_choice,
        tools=echoed.tools,
        text=echoed.text,
        reasoning={
            "effort": None if options.reasoning is None else options.reasoning.effort,
            "summary": None,
        },
        instructions=echoed.instructions,
        max_output_tokens=options.max_output_tokens,
        max_tool_calls=options.max_tool_calls,
        metadata=options.metadata or {},
        previous_response_id=options.previous_response_id,
        truncation=options.truncation or "disabled",
        temperature=params.temperature,
        top_p=params.top_p,
        top_logprobs=options.top_logprobs or 0,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        background=bool(options.background),
        store=options.is_kept,
        user=options.user,
        safety_identifier=options.safety_identifier,
        prompt_cache_key=options.prompt_cache_key,
    )


def truncations(messages: tuple[ChatMessage, ...]) -> list[tuple[ChatMessage, ...]]:
    """A conversation, and what is left of it without its oldest turns: one, two, four and so on, and at last
    all but the newest. So one that grows begins with the same turn for long, and is found computed from
    there. Who is the model told to be is never left out."""
    turns = [place for place, each in enumerate(messages) if each.role == "user"]
    num_gone = [0, *(1 << power for power in range(len(turns).bit_length()) if 1 << power < len(turns) - 1)]
    if len(turns) > 1:
        num_gone.append(len(turns) - 1)
    return [
        tuple(
            each
            for place, each in enumerate(messages)
            if not num or place >= turns[num] or each.role in ("system", "developer")
        )
        for num in num_gone
    ]


def messages_of(items: Sequence[OutputItem], hosted: Mapping[str, HostedTool]) -> tuple[ChatMessage, ...]:
    """Items of one round as the messages they are in a conversation: what was said and called, and what the
    calls came to that the server has made."""
    shown = {(each.server.label, each.tool.name): name for name, each in hosted.items()}
    turn = AssistantTurn(_BEFORE)
    for item in items:
        match item:
            case OutputMessage():
                turn.texts += (part.text for part in item.content)
            case Reasoning():
                turn.reasoning += (part.text for part in item.content)
            case FunctionCall():
                turn.call(item.call_id, item.name, read_object(item.arguments) or {})
            case McpApprovalRequest() | McpCall(status="completed" | "failed"):
                name, call_id = shown.get((item.server_label, item.name), item.name), call_id_of(item.id)
                turn.call(call_id, name, read_object(item.arguments) or {})
                if isinstance(item, McpCall):
                    text = CallOutcome(item.output, item.error).text
                    turn.results.append(call_result(call_id, text, _BEFORE))
    return turn.messages() if turn.texts or turn.reasoning or turn.calls else ()
