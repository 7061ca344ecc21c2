"""An answer's events → the items of a response, and on the way the events of its stream.

The same writer makes a whole response and a streamed one. Shapes are `protocols/responses/output_items.py`,
what is written comes from `protocols/chat/answer_events.py`. Read next: `actors/http/responses/routes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ..chat.answer_events import ArgumentsAdded, CallBegun, CallEnded, Event, ReasoningAdded, TextAdded
from ..chat.response import TokenLogprob
from .hosted_items import HostedCall, HostedItems
from .item_ids import item_id
from .mcp_tools import HostedTool
from .output_items import (
    FunctionCall,
    IncompleteDetails,
    ItemStatus,
    McpApprovalRequest,
    McpCall,
    OutputItem,
    OutputMessage,
    OutputText,
    Reasoning,
    ReasoningText,
    ResponseFault,
    ResponseObject,
    ResponseUsage,
)
from .stream_events import (
    ContentPartAdded,
    ContentPartDone,
    FunctionArgumentsDelta,
    FunctionArgumentsDone,
    McpArgumentsDelta,
    McpArgumentsDone,
    McpCallInProgress,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseEvent,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
)


@dataclass(slots=True)
class _Open:
    """The item that is being written."""

    kind: Literal["message", "reasoning", "call", "hosted", "approval"]
    id: str
    call: CallBegun | None = None
    hosted: HostedTool | None = None
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


class ResponseWriter(HostedItems):
    """Writes one response. Every method gives the events of the stream, numbered; who wants the whole only
    leaves them, and takes `response`."""

    def __init__(self, response: ResponseObject) -> None:
        super().__init__(response.id)
        self.response = response
        """As far as it is written."""
        self.hosted: Mapping[str, HostedTool] = {}
        """What calls are of MCP servers' tools, by the name the model is shown."""
        self._waiting: list[TokenLogprob] = []
        """Of tokens whose text is yet to come, as that of half a character."""
        self._open: _Open | None = None

    def begin(self) -> list[ResponseEvent]:
        """It is being worked on."""
        self.response = msgspec.structs.replace(self.response, status="in_progress")
        return [
            ResponseCreated(self._next(), self.response),
            ResponseInProgress(self._next(), self.response),
        ]

    def add(
        self, events: Iterable[Event], logprobs: Sequence[Sequence[TokenLogprob]] = ()
    ) -> list[ResponseEvent]:
        """More of the answer; `logprobs` are those of each text in it."""
        sent: list[ResponseEvent] = []
        left = iter(logprobs)
        for event in events:
            match event:
                case TextAdded(text):
                    sent += self._switch("message")
                    sent.append(self._text_delta(text, list(next(left, ()))))
                case ReasoningAdded(text):
                    sent += self._switch("reasoning")
                    sent.append(self._reasoning_delta(text))
                case CallBegun():
                    sent += [*self._close("completed"), *self._begin(self._opened(event))]
                case ArgumentsAdded(text=text):
                    sent += self._arguments_delta(text)
                case CallEnded():
                    pass  # what ends it, or cuts it, is known when the next thing comes
        self._waiting += (token for tokens in left for token in tokens)
        return sent

    def end_round(self, *, is_cut: bool) -> list[ResponseEvent]:
        """There is no more of what the model says before its calls are made."""
        return self._close("incomplete" if is_cut else "completed")

    def finish(self, usage: ResponseUsage, *, is_cut: bool, now: int) -> list[ResponseEvent]:
        """There is no more of the answer; `is_cut`: at its most tokens."""
        sent = [*self._close("incomplete" if is_cut else "completed"), *self._give_up_calls()]
        self.response = msgspec.structs.replace(
            self.response,
            status="incomplete" if is_cut else "completed",
            output=self.items,
            usage=usage,
            incomplete_details=IncompleteDetails() if is_cut else None,
            completed_at=None if is_cut else now,
        )
        last = ResponseIncomplete if is_cut else ResponseCompleted
        return [*sent, last(self._next(), self.response)]

    def fail(self, fault: ResponseFault) -> list[ResponseEvent]:
        """It came to nothing, or not to an end."""
        self._break_off("failed", fault)
        return [ResponseFailed(self._next(), self.response)]

    def cancel(self) -> list[ResponseEvent]:
        """Its client wants no more of it; this API has no event of its own for that."""
        self._break_off("cancelled", None)
        return [ResponseIncomplete(self._next(), self.response)]

    def _break_off(self, status: Literal["failed", "cancelled"], fault: ResponseFault | None) -> None:
        self._close("incomplete")
        self._give_up_calls()
        self.response = msgspec.structs.replace(self.response, status=status, output=self.items, error=fault)

    def _switch(self, kind: Literal["message", "reasoning"]) -> list[ResponseEvent]:
        if self._open is not None and self._open.kind == kind:
            return []
        sent = self._close("completed")
        name = item_id("msg" if kind == "message" else "rs", self._response_id, len(self.items))
        return [*sent, *self._begin(_Open(kind, name))]

    def _opened(self, call: CallBegun) -> _Open:
        hosted, response_id, place = self.hosted.get(call.name), self._response_id, len(self.items)
        if hosted is None:
            return _Open("call", item_id("fc", response_id, place), call)
        if hosted.needs_approval:
            return _Open("approval", item_id("mcpr", response_id, place, call.id), call, hosted)
        return _Open("hosted", item_id("mcp", response_id, place, call.id), call, hosted)

    def _begin(self, item: _Open) -> list[ResponseEvent]:
        self._open = item
        index = len(self.items)
        if item.kind == "approval":
            return []  # nobody is asked before all of it is there
        sent: list[ResponseEvent] = [OutputItemAdded(self._next(), index, self._written("in_progress"))]
        if item.kind == "hosted":
            sent.append(McpCallInProgress(self._next(), item.id, index))
        elif item.call is None:
            sent.append(ContentPartAdded(self._next(), item.id, index, part=self._part()))
        return sent

    def _close(self, status: ItemStatus) -> list[ResponseEvent]:
        item, index = self._open, len(self.items)
        if item is None:
            return []
        if item.kind == "approval" and status != "completed":
            self._open = None
            return []
        item.logprobs += self._take_waiting()
        written, part = self._written(status), self._part()
        sent: list[ResponseEvent] = []
        if item.kind == "approval":
            sent.append(OutputItemAdded(self._next(), index, written))
        elif item.kind == "hosted":
            sent.append(McpArgumentsDone(self._next(), item.id, index, arguments=item.text))
        elif item.call is not None:
            sent.append(
                FunctionArgumentsDone(self._next(), item.id, index, name=item.call.name, arguments=item.text)
            )
        else:
            sent.append(self._text_done(item, index))
            sent.append(ContentPartDone(self._next(), item.id, index, part=part))
        self.items.append(written)
        self._open = None
        if isinstance(written, McpCall) and status == "completed":
            self._to_call.append(HostedCall(index, written, item.hosted))
            return sent
        sent.append(OutputItemDone(self._next(), index, written))
        return sent

    def _text_done(self, item: _Open, index: int) -> ResponseEvent:
        number = self._next()
        if item.kind == "reasoning":
            return ReasoningTextDone(number, item.id, index, text=item.text)
        return OutputTextDone(number, item.id, index, text=item.text, logprobs=item.logprobs)

    def _written(self, status: ItemStatus) -> OutputItem:
        """The open item as it is."""
        item = self._open
        assert item is not None, "begun before"
        is_begun = bool(item.texts) or status != "in_progress"
        if item.hosted is not None:
            label, name = item.hosted.server.label, item.hosted.tool.name
            if item.kind == "approval":
                return McpApprovalRequest(id=item.id, server_label=label, name=name, arguments=item.text)
            return McpCall(
                id=item.id,
                server_label=label,
                name=name,
                arguments=item.text,
                status="calling" if status == "completed" else status,
            )
        if item.call is not None:
            return FunctionCall(
                id=item.id, call_id=item.call.id, name=item.call.name, arguments=item.text, status=status
            )
        part = self._part()
        if isinstance(part, OutputText):
            return OutputMessage(id=item.id, status=status, content=[part] if is_begun else [])
        return Reasoning(id=item.id, status=status, content=[part] if is_begun else [])

    def _part(self) -> OutputText | ReasoningText:
        item = self._open
        assert item is not None, "begun before"
        if item.kind == "reasoning":
            return ReasoningText(text=item.text)
        return OutputText(text=item.text, logprobs=list(item.logprobs))

    def _text_delta(self, text: str, logprobs: list[TokenLogprob]) -> ResponseEvent:
        item = self._taken(text)
        logprobs = [*self._take_waiting(), *logprobs]
        item.logprobs += logprobs
        return OutputTextDelta(self._next(), item.id, len(self.items), delta=text, logprobs=logprobs)

    def _reasoning_delta(self, text: str) -> ResponseEvent:
        item = self._taken(text)
        return ReasoningTextDelta(self._next(), item.id, len(self.items), delta=text)

    def _arguments_delta(self, text: str) -> list[ResponseEvent]:
        item = self._taken(text)
        if item.kind == "approval":
            return []
        delta = McpArgumentsDelta if item.kind == "hosted" else FunctionArgumentsDelta
        return [delta(self._next(), item.id, len(self.items), delta=text)]

    def _take_waiting(self) -> list[TokenLogprob]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _taken(self, text: str) -> _Open:
        assert self._open is not None, "begun before"
        self._open.texts.append(text)
        return self._open
