"""Requests of `/v1/responses` → a conversation and what chat would have been asked.

Input items are `protocols/responses/input_items.py`, answers `protocols/responses/output_items.py`. What this
API has and is not served is refused by its name; what only marks a request for its sender is kept and said
again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from ..chat.content import ChatMessage
from ..chat.processor_options import RawProcessorKwargs
from ..chat.request import EFFORTS, ChatRequest, Conversation, as_chat, chat_conversation, check_forced
from ..chat.tools import Tool, nested, read_functions
from ..errors import wrong
from ..shared.generation import StreamOptions, check_common
from ..shared.json_body import Encoded, decoder, missing, refuse, renamed
from ..shared.sampling import Count, NumLogprobs, SamplingFields, TokenLimit
from ..shared.structured_outputs import JsonSchemaFormat, ResponseFormat, StructuredOutputs
from ..shared.unsupported_fields import SERVICE_TIERS, VERBOSITIES, check_unserved
from .input_items import ReadInput, read_input, with_items
from .mcp_tools import (
    HostedTool,
    McpServer,
    check_choice,
    choose_among,
    read_mcp_servers,
    shown_hosted,
    shown_tool,
)
from .output_items import Truncation

MAX_METADATA: Final = 16
_MAX_METADATA_NAME: Final = 64
_MAX_METADATA_VALUE: Final = 512
INCLUDES: Final = (
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
)
"""All but the first change nothing: what is thought is sent as it is, an input is told as it came, and of the
others there are no items."""
_UNSERVED: Final[dict[str, tuple[str, ...]]] = {
    "access_programs": (),
    "context_management": (),
    "conversation": (),
    "image": (),
    "moderation": (),
    "prompt": (),
    "service_tier": SERVICE_TIERS,
}
"""Fields, and what they may say all the same."""
_Field = Raw | UnsetType
_NO_HOSTED: Final[Mapping[str, HostedTool]] = {}


class TextFormat(Struct, frozen=True, forbid_unknown_fields=True):
    """`text.format`: a JSON schema lies flat in it."""

    type: str = "text"
    name: str | None = None
    schema: Raw | UnsetType = UNSET
    strict: bool | None = None
    description: str | None = None


class TextConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`text`."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`reasoning`. Summaries are not made: what is thought is sent as it is."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesRequest(SamplingFields, frozen=True, kw_only=True):
    """The body of `/v1/responses`; null means the default."""

    input: Raw | UnsetType = UNSET
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    store: bool | None = None
    include: list[str] | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: TokenLimit | None = None
    """Of tools the server calls itself."""
    max_output_tokens: TokenLimit | None = None
    truncation: Truncation | None = None
    top_logprobs: NumLogprobs | None = None
    metadata: dict[str, str] | None = None
    user: Annotated[str, msgspec.Meta(max_length=512)] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: _Field = UNSET
    prompt_cache_retention: _Field = UNSET
    client_metadata: _Field = UNSET
    """Codex's, for the books of its maker."""
    # As chat has them.
    thinking_token_budget: Count | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    mm_processor_kwargs: RawProcessorKwargs = UNSET
    skip_special_tokens: bool | None = None
    # Known and not served.
    access_programs: _Field = UNSET
    context_management: _Field = UNSET
    conversation: _Field = UNSET
    image: _Field = UNSET
    moderation: _Field = UNSET
    prompt: _Field = UNSET
    service_tier: _Field = UNSET

    @property
    def is_kept(self) -> bool:
        """Whether it can be had again, and answered further."""
        return self.store is not False

    @property
    def wants_logprobs(self) -> bool:
        """Whether the text comes with log-probabilities."""
        return bool(self.top_logprobs) or INCLUDES[0] in (self.include or ())


@dataclass(frozen=True, slots=True)
class EchoedFields:
    """What a request said and its response says again, where that may be long: JSON, written once."""

    tools: Raw
    tool_choice: Raw
    text: Raw
    instructions: Raw


@dataclass(frozen=True, slots=True)
class CheckedResponse:
    """A checked request: its fields, its own input, and what chat would have been asked."""

    request: ResponsesRequest
    echoed: EchoedFields
    read: ReadInput
    items: list[Raw]
    """The input as it was written, for who asks for it; empty if it is not kept."""
    chat: ChatRequest
    functions: tuple[Tool, ...]
    servers: tuple[McpServer, ...]
    """MCP servers whose tools may be called."""

    def with_items(self, found: Mapping[str, Raw]) -> CheckedResponse:
        """The same, with the items of earlier responses that the input refers to. Raises BadRequestError."""
        assert not isinstance(self.request.input, UnsetType), "it was read"
        whole = with_items(self.request.input, found)
        items = input_items(whole) if self.request.is_kept else []
        return replace(self, read=read_input(whole), items=items)

    def conversation(
        self,
        messages: tuple[ChatMessage, ...],
        hosted: Mapping[str, HostedTool] = _NO_HOSTED,
        *,
        is_first: bool = True,
        may_call: bool = True,
    ) -> Conversation:
        """The conversation that is answered, where these are its messages without instructions.

        Calls are forced where it is asked for the first time (`is_first`), and none is read where none may
        come (`may_call`). Raises BadRequestError naming the field, also where calls and results do not match.
        """
        request = self.request
        first = (
            (ChatMessage(role="system", content=request.instructions, extra={}, param="instructions"),)
            if request.instructions
            else ()
        )
        choice = request.tool_choice
        if not is_first:
            if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
                choice = {**choice, "mode": "auto"}
            elif choice != "none":
                choice = None
        is_parallel = request.parallel_tool_calls is not False
        use = choose_among(self.functions, hosted, choice, is_parallel=is_parallel)
        if not may_call:
            use = replace(use, max_calls=0)
        tools: list[dict[str, Any]] | None = None
        if use.tools:
            tools = [nested(tool) for tool in request.tools or () if tool.get("type") != "mcp"]
            tools += [shown_hosted(name, each) for name, each in hosted.items()]
        return chat_conversation(self.chat, (*first, *messages), tools, use)


FIELD_NAMES: Final = (
    ("response_format.json_schema.schema", "text.format.schema"),
    ("response_format", "text.format"),
    ("max_completion_tokens", "max_output_tokens"),
    ("messages", "input"),
    ("logprobs", "top_logprobs"),
)
"""What chat's rules are about, by this API's names."""

_decode = decoder(ResponsesRequest)


def parse_response(body: Encoded) -> CheckedResponse:
    """Read and check a body, as far as that needs no model and no other response. Raises BadRequestError
    naming the field."""
    return check_response(_decode(body, ""))


def check_response(request: ResponsesRequest) -> CheckedResponse:
    """`parse_response` of what was decoded already."""
    check_unserved(request, _UNSERVED)
    goes_on = request.previous_response_id is not None
    if isinstance(request.input, UnsetType):
        if not goes_on:
            raise missing("input")
        request = structs.replace(request, input=Raw(b"[]"))
    assert not isinstance(request.input, UnsetType)
    check_include(request.include or ())
    effort = None if request.reasoning is None else request.reasoning.effort
    if effort not in (None, *EFFORTS):
        raise refuse("reasoning.effort", effort, ", ".join(EFFORTS))
    verbosity = None if request.text is None else request.text.verbosity
    if verbosity not in (None, *VERBOSITIES):
        raise refuse("text.verbosity", verbosity, ", ".join(VERBOSITIES))
    _check_metadata(request.metadata or {})
    if request.background and request.store is False:
        raise wrong("background", "needs `store`, because it is read later")
    functions = read_functions(request.tools, is_nested=False, other_types=("mcp",))
    servers = read_mcp_servers(request.tools)
    check_choice(functions, servers, request.tool_choice)
    chat = as_chat(
        request,
        stream_options=_stream_options(request),
        max_completion_tokens=request.max_output_tokens,
        logprobs=request.wants_logprobs,
        reasoning_effort=effort,
        response_format=_format(request.text),
    )
    with renamed(FIELD_NAMES):
        check_common(chat)
    check_forced(chat, is_forced=_is_forced(request.tool_choice))
    read = read_input(request.input, may_be_empty=goes_on)
    items = input_items(request.input) if request.is_kept else []
    return CheckedResponse(request, _echoed(request), read, items, chat, functions, servers)


def _is_forced(choice: str | dict[str, Any] | None) -> bool:
    """Whether a checked `tool_choice` has the answer be calls."""
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return choice.get("mode") == "required"
    return choice not in (None, "none", "auto")


def check_include(names: Sequence[str]) -> None:
    """Raise BadRequestError for what cannot be told beside a response."""
    for index, name in enumerate(names):
        if name not in INCLUDES:
            raise refuse(f"include[{index}]", name, ", ".join(INCLUDES))


def _stream_options(request: ResponsesRequest) -> StreamOptions | None:
    """The last event has the usage."""
    if not request.stream:
        return request.stream_options
    return structs.replace(request.stream_options or StreamOptions(), include_usage=True)


def _format(text: TextConfig | None) -> ResponseFormat | None:
    wanted = None if text is None else text.format
    match wanted:
        case None | TextFormat(type="text"):
            return None
        case TextFormat(type="json_object"):
            return ResponseFormat("json_object")
        case TextFormat(type="json_schema", schema=Raw()):
            return ResponseFormat("json_schema", JsonSchemaFormat(name=wanted.name, schema=wanted.schema))
        case TextFormat(type="json_schema"):
            raise missing("text.format.schema")
    raise refuse("text.format.type", wanted.type, "text, json_object, json_schema")


def _echoed(request: ResponsesRequest) -> EchoedFields:
    wanted = None if request.text is None else request.text.format
    if wanted is None:
        plain: dict[str, Any] = {"type": "text"}
    else:
        plain = {key: value for key, value in structs.asdict(wanted).items() if value not in (None, UNSET)}
        if wanted.type == "json_schema":
            plain = {"name": "", "description": None, "strict": False} | plain
    return EchoedFields(
        tools=_json([shown_tool(tool) for tool in request.tools or ()]),
        tool_choice=_json(request.tool_choice or "auto"),
        text=_json({"format": plain}),
        instructions=_json(request.instructions),
    )


def _json(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def input_items(raw: Raw) -> list[Raw]:
    """The items of an input as they were written, but each with an id of its own, by which pages of them are
    asked for, and a message's text as its part; a text is a message."""
    found: Any = msgspec.json.decode(raw)
    if isinstance(found, str):
        found = [{"role": "user", "content": found}]
    items = dict[str, Raw]()
    for index, item in enumerate(found):
        name = item.get("id") or f"item_{index}"
        if name in items:
            name = f"item_{secrets.token_hex(12)}"
        items[name] = _json(_in_parts({"type": "message", **item, "id": name}))
    return list(items.values())


def _in_parts(item: dict[str, Any]) -> dict[str, Any]:
    """An item as answers have it."""
    content = item.get("content")
    if item["type"] != "message" or not isinstance(content, str):
        return item
    if item.get("role") != "assistant":
        return {**item, "content": [{"type": "input_text", "text": content}]}
    echoed = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
    return {"status": "completed", **item, "content": [echoed]}


def _check_metadata(metadata: dict[str, str]) -> None:
    if len(metadata) > MAX_METADATA:
        raise refuse("metadata", sorted(metadata), f"up to {MAX_METADATA} entries")
    for name, value in metadata.items():
        if len(name) > _MAX_METADATA_NAME:
            raise refuse("metadata", name, f"names of up to {_MAX_METADATA_NAME} characters")
        if len(value) > _MAX_METADATA_VALUE:
            raise refuse(f"metadata.{name}", value, f"up to {_MAX_METADATA_VALUE} characters")
