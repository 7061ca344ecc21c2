"""The items of a response that the server works on itself: tools that are listed, and calls that are made.

Each has its place when it begins, and is told again when it is done. Read next: `writer.py`, which
has all the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from .item_ids import call_id_of, item_id
from .mcp_results import CallOutcome
from .mcp_tools import HostedTool
from .output_items import McpApprovalRequest, McpCall, McpListTools, McpTool, OutputItem
from .stream_events import (
    McpArgumentsDone,
    McpCallCompleted,
    McpCallFailed,
    McpCallInProgress,
    McpListToolsCompleted,
    McpListToolsFailed,
    McpListToolsInProgress,
    OutputItemAdded,
    OutputItemDone,
    ResponseEvent,
)


@dataclass(frozen=True, slots=True)
class HostedCall:
    """A call that the server is to make; `place` is its item's."""

    place: int
    item: McpCall
    hosted: HostedTool | None
    """None: of what is not allowed any more."""


class HostedItems:
    """Of one response. Every method gives the events of the stream, numbered."""

    def __init__(self, response_id: str) -> None:
        self._response_id = response_id
        self.items: list[OutputItem] = []
        """Those that are closed, or that the server works on."""
        self._to_call: list[HostedCall] = []
        self._number = 0

    def take_calls(self) -> list[HostedCall]:
        """Those that the server is to make now."""
        calls, self._to_call = self._to_call, []
        return calls

    def begin_call(self, request: McpApprovalRequest, hosted: HostedTool | None) -> list[ResponseEvent]:
        """A call that somebody has agreed to; `take_calls` has it then."""
        place = len(self.items)
        item = McpCall(
            id=item_id("mcp", self._response_id, place, call_id_of(request.id)),
            server_label=request.server_label,
            name=request.name,
            arguments=request.arguments,
            status="in_progress",
            approval_request_id=request.id,
        )
        self.items.append(item)
        self._to_call.append(HostedCall(place, item, hosted))
        return [
            OutputItemAdded(self._next(), place, item),
            McpCallInProgress(self._next(), item.id, place),
            McpArgumentsDone(self._next(), item.id, place, arguments=item.arguments),
        ]

    def end_call(self, call: HostedCall, outcome: CallOutcome) -> list[ResponseEvent]:
        """What it came to."""
        has_failed = outcome.output is None
        item = msgspec.structs.replace(
            call.item,
            status="failed" if has_failed else "completed",
            output=outcome.output,
            error=outcome.error,
        )
        self.items[call.place] = item
        ended = McpCallFailed if has_failed else McpCallCompleted
        return [
            ended(self._next(), item.id, call.place),
            OutputItemDone(self._next(), call.place, item),
        ]

    def begin_list(self, label: str) -> tuple[int, list[ResponseEvent]]:
        """A server is asked for its tools; the place of the item."""
        place = len(self.items)
        item = McpListTools(id=item_id("mcpl", self._response_id, place), server_label=label, tools=[])
        self.items.append(item)
        return place, [
            OutputItemAdded(self._next(), place, item),
            McpListToolsInProgress(self._next(), item.id, place),
        ]

    def end_list(self, place: int, tools: list[McpTool], error: str | None) -> list[ResponseEvent]:
        """What it has told."""
        begun = self.items[place]
        assert isinstance(begun, McpListTools), "begun before"
        item = msgspec.structs.replace(begun, tools=tools, error=error)
        self.items[place] = item
        ended = McpListToolsCompleted if error is None else McpListToolsFailed
        return [
            ended(self._next(), item.id, place),
            OutputItemDone(self._next(), place, item),
        ]

    def _give_up_calls(self) -> list[ResponseEvent]:
        """Those that are not made any more."""
        events: list[ResponseEvent] = []
        for call in self.take_calls():
            item = msgspec.structs.replace(call.item, status="incomplete")
            self.items[call.place] = item
            events.append(OutputItemDone(self._next(), call.place, item))
        return events

    def _next(self) -> int:
        self._number += 1
        return self._number - 1
