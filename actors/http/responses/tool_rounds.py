"""A response whose tools are MCP servers': answered in rounds, and the calls between them are made here.

First every server is asked for its tools that this conversation does not know yet, and calls are made that
the request approves. Then the model answers; calls it makes are made, at the same time, and it goes on with
their results, until it makes none, or one that a client has to answer. **Bounded**: `MAX_ROUNDS` rounds,
behind which the model answers without calls; `max_tool_calls`, `MAX_CALLS` at most; `max_output_tokens` holds
for all rounds together. What fails of a server is told in its item, and the answer goes on. Cancelling ends
all of it. Read next: `actors/mcp/session.py`, `protocols/responses/writer.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ....protocols.chat.content import read_object
from ....protocols.engine.messages import SamplingParams
from ....protocols.errors import BadRequestError, wrong
from ....protocols.responses.hosted_items import HostedCall
from ....protocols.responses.input_items import Approval
from ....protocols.responses.mcp_results import CallOutcome, protocol_error
from ....protocols.responses.mcp_tools import HostedTool, hosted_tools
from ....protocols.responses.output_items import McpApprovalRequest, McpListTools
from ....protocols.responses.request import FIELD_NAMES, CheckedResponse
from ....protocols.shared.generation import CompletionUsage, named_sse, usage
from ...callers import Caller
from ...mcp.client import McpFailure
from ...mcp.session import McpSession
from ...runtime.nursery import all_of, open_work
from ...text.generation import TextModel
from ..chat.answers import Answering
from ..event_stream import Put, put_any
from ..service import Service
from .row_codec import KeptResponse
from .shape import ResponseShape

MAX_ROUNDS: Final = 32
"""Of calls in one response."""
MAX_CALLS: Final = 128
"""In one response."""


ApprovedCall = tuple[Approval, McpApprovalRequest]


class RoundAnswering(Answering):
    """Answers one request."""

    def __init__(
        self,
        service: Service,
        caller: Caller,
        model: TextModel,
        parsed: CheckedResponse,
        params: SamplingParams,
        shape: ResponseShape,
        approved: Sequence[ApprovedCall],
    ) -> None:
        """`approved`: from `approved_calls`. Raises BadRequestError for servers that are not allowed."""
        chat, clients = parsed.chat, service.mcp
        has_limit = chat.wanted_tokens is not None
        super().__init__(service, caller, model, chat, params, shape, has_limit=has_limit, names=FIELD_NAMES)
        clients.check(parsed.servers)
        self._parsed = parsed
        self._response = shape
        self._sessions = {each.label: McpSession(clients, each, self._lane.caller) for each in parsed.servers}
        self._approved = approved
        self._num_calls = 0

    async def whole(self) -> bytes:
        """The body of the whole answer."""
        await self.stream(lambda _: None)
        return msgspec.json.encode(self._response.response)

    async def stream(self, put: Put) -> None:
        """Put the events as they are made. Raises what fails, also where some were put."""
        try:
            await self._rounds(put)
        finally:
            for session in self._sessions.values():
                session.leave()

    async def _rounds(self, put: Put) -> None:
        shape = self._response
        if not shape.has_begun:
            put(shape.begun())
        await self._list(put)
        await self._call_approved(put)
        total: CompletionUsage | None = None
        num_rounds = 0
        while True:
            shape.begin_round(is_first=num_rounds == 0, may_call=num_rounds < MAX_ROUNDS)
            found = await self.put_answers(put)
            total = found if total is None else _together(total, found)
            num_rounds += 1
            put_any(put, named_sse(*shape.writer.end_round(is_cut=shape.is_cut)))
            calls = [] if shape.is_cut else shape.writer.take_calls()
            waits = shape.waits_for_client
            await self._call(put, calls)
            shape.end_round()
            if shape.is_cut or not calls or waits:
                break
            if self._has_limit:
                num_left = self._params.max_tokens - found.completion_tokens
                if num_left <= 0:
                    shape.is_cut = True
                    break
                self._params = msgspec.structs.replace(self._params, max_tokens=num_left)
        put(shape.end(total))

    async def _list(self, put: Put) -> None:
        """Ask every server for its tools that has not told them in this conversation."""
        shape = self._response
        known = {each.server_label for each in shape.listed if each.error is None}

        async def one(session: McpSession, place: int) -> None:
            try:
                events = shape.writer.end_list(place, await session.tools(), None)
            except McpFailure as failure:
                events = shape.writer.end_list(place, [], str(failure))
            put_any(put, named_sse(*events))

        places: list[int] = []
        async with open_work() as nursery:
            for label, session in self._sessions.items():
                if label not in known:
                    place, events = shape.writer.begin_list(label)
                    places.append(place)
                    put_any(put, named_sse(*events))
                    nursery.start_soon(one, session, place)
        new = [each for each in shape.writer.items if isinstance(each, McpListTools)]
        shape.listed = (*shape.listed, *new)
        taken = {tool.name for tool in self._parsed.functions}
        shape.hosted = shape.writer.hosted = hosted_tools(self._parsed.servers, shape.listed, taken)

    async def _call_approved(self, put: Put) -> None:
        shape = self._response
        for _, request in self._approved:
            put_any(put, named_sse(*shape.writer.begin_call(request, self._found(request))))
        outcomes = await self._call(put, shape.writer.take_calls())
        for (approval, _), outcome in zip(self._approved, outcomes, strict=True):
            shape.set_result(approval.place, outcome.text)

    def _found(self, request: McpApprovalRequest) -> HostedTool | None:
        """What was approved, if it is still there and allowed."""
        every = self._response.hosted.values()
        wanted = (request.server_label, request.name)
        return next((each for each in every if (each.server.label, each.tool.name) == wanted), None)

    async def _call(self, put: Put, calls: Sequence[HostedCall]) -> list[CallOutcome]:
        """Make calls, and tell what each comes to when it does; outcomes in order."""
        most = min(self._parsed.request.max_tool_calls or MAX_CALLS, MAX_CALLS)
        first, self._num_calls = self._num_calls, self._num_calls + len(calls)

        async def one(number: int) -> CallOutcome:
            if first + number < most:
                outcome = await self._outcome(calls[number])
            else:
                outcome = protocol_error(-32000, f"The response has made its {most} calls.")
            put_any(put, named_sse(*self._response.writer.end_call(calls[number], outcome)))
            return outcome

        return await all_of(one, range(len(calls)))

    async def _outcome(self, call: HostedCall) -> CallOutcome:
        if call.hosted is None:
            return protocol_error(-32602, "There is no such tool any more, or it is not allowed.")
        arguments = read_object(call.item.arguments)
        if arguments is None:
            return protocol_error(-32602, "The arguments are no JSON object.")
        return await self._sessions[call.hosted.server.label].call(call.hosted.tool.name, arguments)


def approved_calls(parsed: CheckedResponse, before: KeptResponse | None) -> list[ApprovedCall]:
    """The calls that the request agrees to. Raises BadRequestError for those that nobody asked about."""
    output = () if before is None else before.response.output
    requests = {
        each.id: each for each in (*output, *parsed.read.requests) if isinstance(each, McpApprovalRequest)
    }
    labels = {server.label for server in parsed.servers}
    found: list[ApprovedCall] = []
    for approval in parsed.read.approvals:
        param = f"{approval.param}.approval_request_id"
        request = requests.get(approval.request_id)
        if request is None:
            raise BadRequestError(
                f"`{param}`: no approval was requested with {approval.request_id[:80]!r}", param=param
            )
        if not approval.is_given:
            continue
        if request.server_label not in labels:
            raise wrong("tools", f"has no MCP server `{request.server_label[:80]}`, whose call is approved")
        found.append((approval, request))
    return found


def _together(one: CompletionUsage, other: CompletionUsage) -> CompletionUsage:
    cached = one.prompt_tokens_details.cached_tokens + other.prompt_tokens_details.cached_tokens
    return usage(
        one.prompt_tokens + other.prompt_tokens, one.completion_tokens + other.completion_tokens, cached
    )
