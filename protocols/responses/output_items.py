"""What `/v1/responses` answers: the response and its items, in OpenAI's shapes.

Requests are `protocols/responses/request.py`, a stream's events `protocols/responses/stream_events.py`;
`protocols/responses/writer.py` makes these of an answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from ..chat.response import TokenLogprob

EchoedList = Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": {"type": "object"}})]
"""What a request said, as the JSON that its response says again: it may be long, and many events have it."""
EchoedObject = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
EchoedChoice = Annotated[Raw, Meta(extra_json_schema={"type": ["string", "object"]})]
EchoedText = Annotated[Raw, Meta(extra_json_schema={"type": ["string", "null"]})]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
Truncation = Literal["auto", "disabled"]
ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputText(Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """A piece of what is said."""

    text: str
    annotations: list[Any] = []
    logprobs: list[TokenLogprob] = []


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


class McpTool(Struct, frozen=True, kw_only=True):
    """A tool of an MCP server."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    annotations: dict[str, Any] | None = None

    @property
    def reads_only(self) -> bool:
        """Whether its server says that calls change nothing."""
        return (self.annotations or {}).get("readOnlyHint") is True


class McpListTools(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_list_tools"):
    """The tools that an MCP server has, or why it did not tell."""

    id: str
    server_label: str
    tools: list[McpTool]
    error: str | None = None


class McpCall(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_call"):
    """A call that the server made itself. What it came to: `output`, or an `error` in one of OpenAI's shapes
    (`http_error`, `mcp_protocol_error`, `mcp_tool_execution_error`)."""

    id: str
    server_label: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"]
    output: str | None = None
    error: dict[str, Any] | None = None
    approval_request_id: str | None = None


class McpApprovalRequest(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_approval_request"):
    """A call that somebody has to agree to, by an `mcp_approval_response`."""

    id: str
    server_label: str
    name: str
    arguments: str


OutputItem = OutputMessage | FunctionCall | Reasoning | McpListTools | McpCall | McpApprovalRequest


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
    """A response, finished or not; what the request said is said again.

    Every field is there, as OpenAI's and the open Responses schema require."""

    id: str
    created_at: int
    status: ResponseStatus
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    tool_choice: EchoedChoice
    tools: EchoedList
    text: EchoedObject
    instructions: EchoedText
    reasoning: dict[str, Any]
    object: Literal["response"] = "response"
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] = {}
    previous_response_id: str | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_logprobs: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    truncation: Truncation = "disabled"
    service_tier: Literal["default"] = "default"
    background: bool = False
    store: bool = True
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    usage: ResponseUsage | None = None
    completed_at: int | None = None


class DeletedResponse(Struct, frozen=True, kw_only=True):
    """What deleting is answered with."""

    id: str
    deleted: bool = True
    object: Literal["response"] = "response"


class InputTokenCount(Struct, frozen=True, kw_only=True):
    """How long the prompt of a response would be."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class InputItemList(Struct, frozen=True, kw_only=True):
    """What a response was asked with, or a page of it."""

    data: list[Raw]
    first_id: str | None
    last_id: str | None
    has_more: bool = False
    object: Literal["list"] = "list"
