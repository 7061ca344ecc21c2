"""Requests of `/v1/messages`, in Anthropic's shape → a conversation and what chat would have been asked.

A user's blocks may hold the results of tools, which are messages of their own for a template. What this API
has and is not served is refused by its name. Answers are `protocols/anthropic/response.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..chat.assistant_turn import AssistantTurn, call_result
from ..chat.content import (
    MAX_MESSAGES,
    MAX_PARTS,
    ChatMessage,
    MediaPart,
    Part,
    Role,
    TextPart,
    read_file,
)
from ..chat.processor_options import RawProcessorKwargs
from ..chat.request import ChatRequest, Conversation, as_chat, chat_conversation, check_forced
from ..chat.tools import ToolUse, read_tool_use
from ..errors import BadRequestError, wrong
from ..shared.data_uri import read_base64
from ..shared.generation import StreamOptions, check_common
from ..shared.json_body import Encoded, decoder, given, refuse, unsupported
from ..shared.sampling import CacheSalt, Count, Priority, Seed, Temperature, TokenLimit, TopK, TopP
from ..shared.structured_outputs import StructuredOutputs
from ..shared.unsupported_fields import check_unserved
from .output_config import OutputConfig, check_context_management, effort_of, form_of

UNSERVED: Final = ("container", "mcp_servers", "output_format", "thread")
_BLOCKS: Final = "text, image, tool_use, tool_result, thinking"
_Field = Raw | UnsetType


_BILLING: Final = "x-anthropic-billing-header:"
"""What Claude Code writes in front, for its maker's books: another one in each session, so that none would
find the instructions and tools of the one before computed."""


class _Message(Struct, frozen=True, forbid_unknown_fields=True):
    role: str
    content: str | list[Raw]


class _Source(Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    media_type: str | None = None
    data: Raw | UnsetType = UNSET
    url: Raw | UnsetType = UNSET
    file_id: str | None = None


class _Block(Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    text: str | None = None
    source: _Source | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[Raw] | None = None
    is_error: bool | None = None
    thinking: str | None = None
    data: str | None = None
    # These change no answer: whatever fits is cached, and what is thought is not signed here.
    signature: Raw | UnsetType = UNSET
    cache_control: Raw | UnsetType = UNSET
    citations: Raw | UnsetType = UNSET
    caller: Raw | UnsetType = UNSET


class ThinkingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`thinking`."""

    type: str
    budget_tokens: Count | None = None
    display: str | None = None


class ToolChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """`tool_choice`."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class MessageCountRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `/v1/messages/count_tokens`."""

    messages: list[Raw]
    model: str | None = None
    system: str | list[Raw] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    cache_control: _Field = UNSET
    context_management: _Field = UNSET
    mm_processor_kwargs: RawProcessorKwargs = UNSET
    """As chat has it."""
    # Known and not served.
    container: _Field = UNSET
    mcp_servers: _Field = UNSET
    output_format: _Field = UNSET
    thread: _Field = UNSET


class MessageRequest(MessageCountRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `/v1/messages`."""

    max_tokens: TokenLimit
    stream: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    stop_sequences: list[str] | None = None
    metadata: Raw | UnsetType = UNSET
    service_tier: str | None = None
    # As chat has them.
    seed: Seed | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    priority: Priority | None = None
    cache_salt: CacheSalt | None = None


@dataclass(frozen=True, slots=True)
class CheckedMessage:
    """A checked request."""

    request: MessageCountRequest
    chat: ChatRequest
    conversation: Conversation


_decode = decoder(MessageRequest)
_decode_count = decoder(MessageCountRequest)
_decode_message = decoder(_Message)
_decode_block = decoder(_Block)


def parse_message(body: Encoded) -> CheckedMessage:
    """Read and check a body, as far as that needs no model. Raises BadRequestError naming the field."""
    request = _decode(body, "")
    if request.service_tier not in (None, "auto", "standard_only"):
        raise refuse("service_tier", request.service_tier, "auto, standard_only")
    options = StreamOptions(include_usage=True) if request.stream else None
    chat = _as_chat(
        request,
        stream_options=options,
        stop=request.stop_sequences,
        thinking_token_budget=None if request.thinking is None else request.thinking.budget_tokens,
    )
    check_common(chat)
    return _checked(request, chat)


def parse_message_count(body: Encoded) -> CheckedMessage:
    """The same for a request that only wants to know how long its prompt is."""
    request = _decode_count(body, "")
    return _checked(request, _as_chat(request))


def _as_chat(request: MessageCountRequest, **others: Any) -> ChatRequest:  # noqa: ANN401 (of any field)
    return as_chat(
        request,
        enable_thinking=_enables_thinking(request),
        reasoning_effort=effort_of(request.output_config),
        response_format=form_of(request.output_config),
        **others,
    )


def _checked(request: MessageCountRequest, chat: ChatRequest) -> CheckedMessage:
    check_unserved(request, dict.fromkeys(UNSERVED, ()))
    check_context_management(request.context_management)
    tools = [_nested(tool, f"tools[{index}]") for index, tool in enumerate(request.tools or ())]
    with _own_names():
        use = _tool_use(tools, request.tool_choice)
    check_forced(chat, is_forced=use.is_forced)
    messages = (*_system(request.system), *_read_messages(request.messages))
    last = messages[-1]
    if last.role == "assistant" and last.content and "tool_calls" not in last.extra:
        chat = msgspec.structs.replace(chat, continue_final_message=True)  # as this API does
    with _own_names():
        conversation = chat_conversation(chat, messages, tools if use.tools else None, use)
    return CheckedMessage(request, chat, replace(conversation, is_budget_optional=True))


_OWN_NAMES: Final = (
    (".function.parameters", ".input_schema"),
    (".function.", "."),
    (".tool_call_id", ".tool_use_id"),
)


@contextmanager
def _own_names() -> Iterator[None]:
    """Let errors name fields as this API does, where chat's rules found them."""
    try:
        yield
    except BadRequestError as error:
        for theirs, ours in _OWN_NAMES:
            error.message = error.message.replace(theirs, ours)
            error.param = None if error.param is None else error.param.replace(theirs, ours)
        error.args = (error.message,)
        raise


def _enables_thinking(request: MessageCountRequest) -> bool | None:
    if request.thinking is None:
        return None
    if request.thinking.type not in ("enabled", "disabled", "adaptive"):
        raise refuse("thinking.type", request.thinking.type, "enabled, disabled, adaptive")
    return request.thinking.type != "disabled"


def _nested(tool: dict[str, Any], param: str) -> dict[str, Any]:
    """A tool as templates take it."""
    if tool.get("type", "custom") != "custom":
        raise unsupported(f"{param}.type", f"is {str(tool['type'])[:40]!r}; only custom tools are supported")
    names = {"name": "name", "description": "description", "input_schema": "parameters"}
    return {"type": "function", "function": {ours: tool[key] for key, ours in names.items() if key in tool}}


def _tool_use(tools: list[dict[str, Any]], choice: ToolChoice | None) -> ToolUse:
    is_parallel = not (choice is not None and choice.disable_parallel_tool_use)
    match choice:
        case None | ToolChoice(type="auto"):
            return read_tool_use(tools, "auto", is_parallel=is_parallel)
        case ToolChoice(type="none"):
            return read_tool_use(tools, "none")
        case ToolChoice(type="any"):
            return read_tool_use(tools, "required", is_parallel=is_parallel)
        case ToolChoice(type="tool"):
            named = {"type": "function", "function": {"name": choice.name}}
            return read_tool_use(tools, named, is_parallel=is_parallel)
    raise refuse("tool_choice.type", choice.type, "auto, any, tool, none")


def _system(system: str | list[Raw] | None) -> tuple[ChatMessage, ...]:
    return (_instruction(system, "system", "system"),) if system else ()


def _instruction(content: str | list[Raw], param: str, where: str) -> ChatMessage:
    """In front of the conversation or, as Claude Code has it, in the midst."""
    if isinstance(content, list):
        blocks = _blocks(content, where)
        for block, place in blocks:
            if block.type != "text":
                raise refuse(f"{place}.type", block.type, "text")
        texts = [given(block.text, f"{place}.text") for block, place in blocks]
        content = "\n".join(text for text in texts if not text.startswith(_BILLING))
    return ChatMessage(role="system", content=content, extra={}, param=param)


def _read_messages(raw: list[Raw]) -> tuple[ChatMessage, ...]:
    if not 0 < len(raw) <= MAX_MESSAGES:
        raise wrong("messages", f"has {len(raw)} entries; allowed: 1 to {MAX_MESSAGES}")
    found: list[ChatMessage] = []
    for index, each in enumerate(raw):
        param = f"messages[{index}]"
        message = _decode_message(each, param)
        if message.role not in ("user", "assistant", "system"):
            raise refuse(f"{param}.role", message.role, "user, assistant, system")
        if message.role == "system":
            found.append(_instruction(message.content, param, f"{param}.content"))
            continue
        if isinstance(message.content, str):
            role: Role = "user" if message.role == "user" else "assistant"
            found.append(ChatMessage(role=role, content=message.content, extra={}, param=param))
            continue
        blocks = _blocks(message.content, f"{param}.content")
        found += (_user if message.role == "user" else _assistant)(blocks, param)
    return tuple(found)


def _blocks(raw: list[Raw], param: str) -> list[tuple[_Block, str]]:
    if len(raw) > MAX_PARTS:
        raise wrong(param, f"has {len(raw)} blocks; allowed: up to {MAX_PARTS}")
    places = [f"{param}[{index}]" for index in range(len(raw))]
    return [(_decode_block(each, place), place) for each, place in zip(raw, places, strict=True)]


def _user(blocks: Sequence[tuple[_Block, str]], param: str) -> list[ChatMessage]:
    """The results of tools, and what is said beside them; behind the results what files they hold, since
    templates have files in what a user says."""
    found: list[ChatMessage] = []
    shown: list[Part] = []
    parts: list[Part] = []
    for block, place in blocks:
        if block.type != "tool_result":
            parts.append(_part(block, place))
            continue
        content = block.content or ""
        if isinstance(content, list):
            inner = [_part(each, where) for each, where in _blocks(content, f"{place}.content")]
            shown += (part for part in inner if isinstance(part, MediaPart))
            content = "\n".join(part.text for part in inner if isinstance(part, TextPart))
        found.append(call_result(given(block.tool_use_id, f"{place}.tool_use_id"), content, place))
    if shown or parts or not found:
        found.append(ChatMessage(role="user", content=(*shown, *parts), extra={}, param=param))
    return found


def _part(block: _Block, param: str) -> Part:
    match block.type:
        case "text":
            return TextPart(given(block.text, f"{param}.text"))
        case "image":
            source = given(block.source, f"{param}.source")
            if source.type == "url":
                where = f"{param}.source.url"
                return read_file("image", given(source.url, where), where, param)
            if source.type != "base64":
                raise unsupported(f"{param}.source.type", f"is {source.type[:40]!r}; allowed: base64, url")
            where = f"{param}.source.data"
            return MediaPart("image", read_base64(given(source.data, where), where), param)
    raise unsupported(f"{param}.type", f"is {block.type[:40]!r}; served are {_BLOCKS}")


def _assistant(blocks: Sequence[tuple[_Block, str]], param: str) -> tuple[ChatMessage, ...]:
    turn = AssistantTurn(param)
    for block, place in blocks:
        match block.type:
            case "text":
                turn.texts.append(given(block.text, f"{place}.text"))
            case "thinking":
                turn.reasoning.append(given(block.thinking, f"{place}.thinking"))
            case "redacted_thinking":
                pass  # nobody can read it
            case "tool_use":
                name, arguments = given(block.name, f"{place}.name"), given(block.input, f"{place}.input")
                turn.call(given(block.id, f"{place}.id"), name, arguments)
            case other:
                raise unsupported(f"{place}.type", f"is {other[:40]!r}; served are {_BLOCKS}")
    return turn.messages()
