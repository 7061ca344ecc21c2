"""The events of a stream of `/v1/responses`, in OpenAI's shapes, numbered by `sequence_number`.

The items in them are `protocols/responses/output_items.py`; `protocols/responses/writer.py` makes
these of an answer.
"""

from __future__ import annotations

from msgspec import Struct

from ..chat.response import TokenLogprob
from .output_items import OutputItem, OutputText, ReasoningText, ResponseObject


class _Event(Struct, frozen=True, tag_field="type"):
    sequence_number: int


class _OfResponse(_Event, frozen=True):
    response: ResponseObject


class _OfOutput(_Event, frozen=True):
    output_index: int
    item: OutputItem


class _OfItem(_Event, frozen=True):
    item_id: str
    output_index: int


class _OfPart(_OfItem, frozen=True, kw_only=True):
    content_index: int = 0


class ResponseCreated(_OfResponse, frozen=True, kw_only=True, tag="response.created"):
    """The first event."""


class ResponseInProgress(_OfResponse, frozen=True, kw_only=True, tag="response.in_progress"):
    """The second."""


class ResponseCompleted(_OfResponse, frozen=True, kw_only=True, tag="response.completed"):
    """The last, of an answer that is complete."""


class ResponseIncomplete(_OfResponse, frozen=True, kw_only=True, tag="response.incomplete"):
    """The last, of one that was cut."""


class ResponseFailed(_OfResponse, frozen=True, kw_only=True, tag="response.failed"):
    """The last, of one that failed."""


class OutputItemAdded(_OfOutput, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item begins, empty."""


class OutputItemDone(_OfOutput, frozen=True, kw_only=True, tag="response.output_item.done"):
    """It is there."""


class ContentPartAdded(_OfPart, frozen=True, kw_only=True, tag="response.content_part.added"):
    """A message's text, or reasoning's, begins."""

    part: OutputText | ReasoningText


class ContentPartDone(_OfPart, frozen=True, kw_only=True, tag="response.content_part.done"):
    """It is there."""

    part: OutputText | ReasoningText


class OutputTextDelta(_OfPart, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """More of what is said."""

    delta: str
    logprobs: list[TokenLogprob] = []


class OutputTextDone(_OfPart, frozen=True, kw_only=True, tag="response.output_text.done"):
    """All of it."""

    text: str
    logprobs: list[TokenLogprob] = []


class ReasoningTextDelta(_OfPart, frozen=True, kw_only=True, tag="response.reasoning_text.delta"):
    """More of what is thought."""

    delta: str


class ReasoningTextDone(_OfPart, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    """All of it."""

    text: str


class FunctionArgumentsDelta(
    _OfItem, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"
):
    """More of a call's arguments."""

    delta: str


class FunctionArgumentsDone(_OfItem, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    """All of them."""

    name: str
    arguments: str


class McpListToolsInProgress(_OfItem, frozen=True, kw_only=True, tag="response.mcp_list_tools.in_progress"):
    """An MCP server is asked for its tools."""


class McpListToolsCompleted(_OfItem, frozen=True, kw_only=True, tag="response.mcp_list_tools.completed"):
    """It has told them."""


class McpListToolsFailed(_OfItem, frozen=True, kw_only=True, tag="response.mcp_list_tools.failed"):
    """It has not."""


class McpCallInProgress(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call.in_progress"):
    """A call of an MCP server's tool begins."""


class McpCallCompleted(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call.completed"):
    """It has a result."""


class McpCallFailed(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call.failed"):
    """It has none, but an error."""


class McpArgumentsDelta(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call_arguments.delta"):
    """More of its arguments."""

    delta: str


class McpArgumentsDone(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call_arguments.done"):
    """All of them."""

    arguments: str


ResponseEvent = (
    ResponseCreated
    | ResponseInProgress
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | FunctionArgumentsDelta
    | FunctionArgumentsDone
    | McpListToolsInProgress
    | McpListToolsCompleted
    | McpListToolsFailed
    | McpCallInProgress
    | McpCallCompleted
    | McpCallFailed
    | McpArgumentsDelta
    | McpArgumentsDone
)
