"""What the open Responses schema requires of responses and events, for tests: decoding one checks it.

The facts are those of the schema published in `openresponses/openresponses` (`public/openapi/openapi.json`):
which fields must be there, and of which types; a field without a default here is required there. It knows no
MCP items, and reasoning's events by another name than OpenAI's: those are passed over.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct
from sensorium.protocols.shared.whole_numbers import without_fractions

_EXTENSIONS: Final = ("response.mcp_", "response.reasoning_text.")


class _LogProb(Struct):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[dict[str, Any]]


class _OutputText(Struct, tag_field="type", tag="output_text"):
    text: str
    annotations: list[dict[str, Any]]
    logprobs: list[_LogProb]


class _InputText(Struct, tag_field="type", tag="input_text"):
    text: str


class _ReasoningText(Struct, tag_field="type", tag="reasoning_text"):
    text: str


_Part = _OutputText | _InputText | _ReasoningText


class _Message(Struct, tag_field="type", tag="message"):
    id: str
    status: Literal["in_progress", "completed", "incomplete"]
    role: Literal["user", "assistant", "system", "developer"]
    content: list[_Part]


class _FunctionCall(Struct, tag_field="type", tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed", "incomplete"]


class _FunctionCallOutput(Struct, tag_field="type", tag="function_call_output"):
    id: str
    call_id: str
    output: str | list[dict[str, Any]]
    status: Literal["in_progress", "completed", "incomplete"]


class _Reasoning(Struct, tag_field="type", tag="reasoning"):
    id: str
    summary: list[_Part]
    content: list[_Part] = []


_Item = _Message | _FunctionCall | _FunctionCallOutput | _Reasoning


class _Error(Struct):
    code: str
    message: str


class _Incomplete(Struct):
    reason: str


class _Tool(Struct, tag_field="type", tag="function"):
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None


class _Named(Struct):
    type: str


class _AllowedTools(Struct, tag_field="type", tag="allowed_tools"):
    tools: list[_Named]
    mode: Literal["none", "auto", "required"]


class _FunctionChoice(Struct, tag_field="type", tag="function"):
    name: str = ""


class _TextFormat(Struct, tag_field="type", tag="text"):
    pass


class _ObjectFormat(Struct, tag_field="type", tag="json_object"):
    pass


class _SchemaFormat(Struct, tag_field="type", tag="json_schema"):
    name: str
    description: str | None
    schema: dict[str, Any] | None
    """The published document has only null, which it echoes for no schema; OpenAI echoes the schema."""
    strict: bool


class _Text(Struct):
    format: _TextFormat | _ObjectFormat | _SchemaFormat


class _ReasoningConfig(Struct):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None
    summary: Literal["concise", "detailed", "auto"] | None


class _InputDetails(Struct):
    cached_tokens: int


class _OutputDetails(Struct):
    reasoning_tokens: int


class _Usage(Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: _InputDetails
    output_tokens_details: _OutputDetails


class _Response(Struct):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: str
    incomplete_details: _Incomplete | None
    model: str
    previous_response_id: str | None
    instructions: str | None
    output: list[Raw]
    error: _Error | None
    tools: list[Raw]
    tool_choice: Literal["none", "auto", "required"] | _FunctionChoice | _AllowedTools
    truncation: Literal["auto", "disabled"]
    parallel_tool_calls: bool
    text: _Text
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    temperature: float
    reasoning: _ReasoningConfig | None
    usage: _Usage | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool
    background: bool
    service_tier: str
    metadata: dict[str, str]
    safety_identifier: str | None
    prompt_cache_key: str | None


class _Event(Struct):
    type: str
    sequence_number: int


class _OfResponse(_Event):
    response: Raw


class _OfItem(_Event):
    output_index: int
    item: Raw


class _Within(_Event):
    item_id: str
    output_index: int


class _OfPart(_Within):
    content_index: int
    part: _Part


class _TextDelta(_Within):
    content_index: int
    delta: str
    logprobs: list[_LogProb]


class _TextDone(_Within):
    content_index: int
    text: str
    logprobs: list[_LogProb]


class _ArgumentsDelta(_Within):
    delta: str


class _ArgumentsDone(_Within):
    arguments: str


_EVENTS: Final[dict[str, type[_Event]]] = {
    "response.content_part.added": _OfPart,
    "response.content_part.done": _OfPart,
    "response.output_text.delta": _TextDelta,
    "response.output_text.done": _TextDone,
    "response.function_call_arguments.delta": _ArgumentsDelta,
    "response.function_call_arguments.done": _ArgumentsDone,
}
_SNAPSHOTS: Final = ("queued", "created", "in_progress", "completed", "failed", "incomplete")


def check_response(body: bytes | Raw) -> None:
    """Raises msgspec.ValidationError that names the field which the schema requires otherwise.

    An integer of JSON Schema may be written with a fraction of zeros, as OpenAI's package writes times."""
    response = msgspec.json.decode(without_fractions(bytes(body)), type=_Response)
    for tool in response.tools:
        if msgspec.json.decode(tool, type=_Named).type != "mcp":
            msgspec.json.decode(tool, type=_Tool)
    for item in response.output:
        _check_item(item)


def check_event(body: bytes) -> None:
    """The same of an event. Raises KeyError for one that neither the schema nor OpenAI has."""
    event = msgspec.json.decode(body, type=_Event)
    if event.type.startswith(_EXTENSIONS):
        return
    name = event.type.removeprefix("response.")
    if name in _SNAPSHOTS:
        check_response(msgspec.json.decode(body, type=_OfResponse).response)
    elif name in ("output_item.added", "output_item.done"):
        _check_item(msgspec.json.decode(body, type=_OfItem).item)
    else:
        msgspec.json.decode(body, type=_EVENTS[event.type])


def _check_item(item: Raw) -> None:
    if not msgspec.json.decode(item, type=_Named).type.startswith("mcp_"):
        msgspec.json.decode(item, type=_Item)
