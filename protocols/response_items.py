"""What `/v1/responses` answers: the response, its items, and the events of a stream, in OpenAI's shapes.

Requests are `protocols/responses.py`; `actors/http/response_writer.py` makes these of an answer.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .chat_answers import TokenLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputText(Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """A piece of what is said."""

    text: str
    annotations: list[Any] = []
    logprobs: list[TokenLogprob] | UnsetType = UNSET


class ReasoningText(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning_text"):
    """What the model thought."""

    text: str


class OutputMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """What the answer says."""

    id: str
    status: ItemStatus
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class FunctionCall(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """One call of a tool."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class Reasoning(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought before it answered or called."""

    id: str
    summary: list[Any] = []
    content: list[ReasoningText]
    status: ItemStatus


OutputItem = OutputMessage | FunctionCall | Reasoning


class InputTokensDetails(Struct, frozen=True):
    """Of the input's tokens, those that were in the prefix cache."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, frozen=True):
    """Of the output's tokens, those that were thought."""

    reasoning_tokens: int


class ResponseUsage(Struct, frozen=True, kw_only=True):
    """Tokens read and written."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseFault(Struct, frozen=True):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(Struct, frozen=True):
    """Why a response is not complete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseObject(Struct, frozen=True, kw_only=True):
    """A response, finished or not; what the request said is said again."""

    id: str
    created_at: int
    status: ResponseStatus
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    text: dict[str, Any]
    reasoning: dict[str, Any]
    object: Literal["response"] = "response"
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    previous_response_id: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    truncation: Literal["disabled"] = "disabled"
    service_tier: Literal["default"] = "default"
    background: bool = False
    store: bool = True
    user: str | None = None
    usage: ResponseUsage | None = None
    completed_at: int | None = None


class DeletedResponse(Struct, frozen=True, kw_only=True):
    """What deleting is answered with."""

    id: str
    deleted: bool = True
    object: Literal["response"] = "response"


class InputItemList(Struct, frozen=True, kw_only=True):
    """What a response was asked with."""

    data: list[msgspec.Raw]
    first_id: str | None
    last_id: str | None
    has_more: bool = False
    object: Literal["list"] = "list"


# --- events --------------------------------------------------------------------------------------------


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
)


def event_frame(event: ResponseEvent) -> bytes:
    """One server-sent event, named by its type."""
    name = event.__struct_config__.tag
    return b"event: %s\ndata: %s\n\n" % (str(name).encode(), msgspec.json.encode(event))
