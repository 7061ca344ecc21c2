"""The events of a stream of `/v1/responses`, in OpenAI's shapes, numbered by `sequence_number`.

The items in them are `protocols/response_items.py`; `actors/http/response_writer.py` makes
these of an answer.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from .chat_answers import TokenLogprob
from .response_items import OutputItem, OutputText, ReasoningText, ResponseObject


class _Event(Struct, frozen=True, kw_only=True):
    sequence_number: int


class ResponseCreated(_Event, frozen=True, kw_only=True, tag_field="type", tag="response.created"):
    """The first event."""

    response: ResponseObject


class ResponseInProgress(_Event, frozen=True, kw_only=True, tag_field="type", tag="response.in_progress"):
    """The second."""

    response: ResponseObject


class ResponseCompleted(_Event, frozen=True, kw_only=True, tag_field="type", tag="response.completed"):
    """The last, of an answer that is complete."""

    response: ResponseObject


class ResponseIncomplete(_Event, frozen=True, kw_only=True, tag_field="type", tag="response.incomplete"):
    """The last, of one that was cut."""

    response: ResponseObject


class ResponseFailed(_Event, frozen=True, kw_only=True, tag_field="type", tag="response.failed"):
    """The last, of one that failed."""

    response: ResponseObject


class OutputItemAdded(_Event, frozen=True, kw_only=True, tag_field="type", tag="response.output_item.added"):
    """An item begins, empty."""

    output_index: int
    item: OutputItem


class OutputItemDone(_Event, frozen=True, kw_only=True, tag_field="type", tag="response.output_item.done"):
    """It is there."""

    output_index: int
    item: OutputItem


class _PartEvent(_Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int
    content_index: int = 0


class ContentPartAdded(
    _PartEvent, frozen=True, kw_only=True, tag_field="type", tag="response.content_part.added"
):
    """A message's text, or reasoning's, begins."""

    part: OutputText | ReasoningText


class ContentPartDone(
    _PartEvent, frozen=True, kw_only=True, tag_field="type", tag="response.content_part.done"
):
    """It is there."""

    part: OutputText | ReasoningText


class OutputTextDelta(
    _PartEvent, frozen=True, kw_only=True, tag_field="type", tag="response.output_text.delta"
):
    """More of what is said."""

    delta: str
    logprobs: list[TokenLogprob] = []


class OutputTextDone(
    _PartEvent, frozen=True, kw_only=True, tag_field="type", tag="response.output_text.done"
):
    """All of it."""

    text: str
    logprobs: list[TokenLogprob] = []


class ReasoningTextDelta(
    _PartEvent, frozen=True, kw_only=True, tag_field="type", tag="response.reasoning_text.delta"
):
    """More of what is thought."""

    delta: str


class ReasoningTextDone(
    _PartEvent, frozen=True, kw_only=True, tag_field="type", tag="response.reasoning_text.done"
):
    """All of it."""

    text: str


class FunctionArgumentsDelta(
    _Event, frozen=True, kw_only=True, tag_field="type", tag="response.function_call_arguments.delta"
):
    """More of a call's arguments."""

    item_id: str
    output_index: int
    delta: str


class FunctionArgumentsDone(
    _Event, frozen=True, kw_only=True, tag_field="type", tag="response.function_call_arguments.done"
):
    """All of them."""

    item_id: str
    output_index: int
    name: str
    arguments: str


class _ItemEvent(_Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int


class McpListToolsInProgress(
    _ItemEvent, frozen=True, kw_only=True, tag_field="type", tag="response.mcp_list_tools.in_progress"
):
    """An MCP server is asked for its tools."""


class McpListToolsCompleted(
    _ItemEvent, frozen=True, kw_only=True, tag_field="type", tag="response.mcp_list_tools.completed"
):
    """It has told them."""


class McpListToolsFailed(
    _ItemEvent, frozen=True, kw_only=True, tag_field="type", tag="response.mcp_list_tools.failed"
):
    """It has not."""


class McpCallInProgress(
    _ItemEvent, frozen=True, kw_only=True, tag_field="type", tag="response.mcp_call.in_progress"
):
    """A call of an MCP server's tool begins."""


class McpCallCompleted(
    _ItemEvent, frozen=True, kw_only=True, tag_field="type", tag="response.mcp_call.completed"
):
    """It has a result."""


class McpCallFailed(_ItemEvent, frozen=True, kw_only=True, tag_field="type", tag="response.mcp_call.failed"):
    """It has none, but an error."""


class McpArgumentsDelta(
    _ItemEvent, frozen=True, kw_only=True, tag_field="type", tag="response.mcp_call_arguments.delta"
):
    """More of its arguments."""

    delta: str


class McpArgumentsDone(
    _ItemEvent, frozen=True, kw_only=True, tag_field="type", tag="response.mcp_call_arguments.done"
):
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


def event_frame(event: ResponseEvent) -> bytes:
    """One server-sent event, named by its type."""
    name = event.__struct_config__.tag
    return b"event: %s\ndata: %s\n\n" % (str(name).encode(), msgspec.json.encode(event))
