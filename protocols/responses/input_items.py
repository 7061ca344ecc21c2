"""Input items of `/v1/responses` → chat messages: what the model thought, said and called in one turn is one.

Errors name the item by its path (`input[1].content[0]`). Read next: `protocols/responses/request.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..chat.assistant_turn import AssistantTurn, call_result
from ..chat.content import (
    MAX_MESSAGES,
    ChatMessage,
    MediaPart,
    Part,
    Role,
    TextPart,
    check_media,
    in_detail,
    read_arguments,
    read_content,
    read_file,
)
from ..errors import wrong
from ..shared.json_body import Decode, decoder, given, missing, refuse, unsupported
from .item_ids import call_id_of
from .mcp_results import declined_text, failure_text
from .output_items import McpApprovalRequest, McpListTools

_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "system": "system",
    "developer": "developer",
    "assistant": "assistant",
}
_ITEMS: Final = (
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "mcp_list_tools",
    "mcp_call",
    "mcp_approval_request",
    "mcp_approval_response",
    "item_reference",
)
_UNMADE: Final = ("in_progress", "calling", "incomplete")
"""Of a call that a response was too short for: nothing is told of it."""
_decode_list: Final = decoder(McpListTools)


class _Item(Struct, frozen=True, forbid_unknown_fields=True):
    type: str = "message"
    role: str | None = None
    content: str | list[Raw] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[Raw] | None = None
    server_label: str | None = None
    approval_request_id: str | None = None
    approve: bool | None = None
    reason: str | None = None
    error: Any = None
    # What an answer's items have beside, and are sent back with; what is summarised or encrypted is not read.
    id: str | None = None
    status: str | None = None
    summary: Raw | UnsetType = UNSET
    encrypted_content: Raw | UnsetType = UNSET
    phase: Raw | UnsetType = UNSET
    caller: Raw | UnsetType = UNSET
    namespace: Raw | UnsetType = UNSET


class _ReasoningText(Struct, frozen=True):
    text: str


class _Image(Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    image_url: Raw | UnsetType = UNSET
    detail: str | None = None
    file_id: str | None = None
    prompt_cache_breakpoint: Raw | UnsetType = UNSET


class _Kind(Struct, frozen=True):
    type: str | None = None


_decode_input: Decode[str | list[Raw]] = decoder(str | list[Raw])  # type: ignore[arg-type]  # a union
_decode_item = decoder(_Item)
_decode_reasoning_text = decoder(_ReasoningText)
_decode_image = decoder(_Image)
_decode_kind = decoder(_Kind)


@dataclass(frozen=True, slots=True)
class Approval:
    """An `mcp_approval_response` whose call was not made yet; `place` is where in the messages its result
    belongs."""

    request_id: str
    is_given: bool
    reason: str
    place: int
    param: str


@dataclass(frozen=True, slots=True)
class ReadInput:
    """An input, read."""

    messages: tuple[ChatMessage, ...]
    listed: tuple[McpListTools, ...] = ()
    requests: tuple[McpApprovalRequest, ...] = ()
    approvals: tuple[Approval, ...] = ()
    references: Mapping[str, str] = field(default_factory=dict)
    """Where it refers to items of earlier responses, by their ids; `with_items` puts them there."""


def with_items(raw: Raw, found: Mapping[str, Raw]) -> Raw:
    """The same input with the items it refers to in the places of their references."""
    items = msgspec.json.decode(raw, type=list[Raw])
    for index, item in enumerate(items):
        if _decode_kind(item).type == "item_reference":
            items[index] = found[_decode_item(item).id or ""]
    return Raw(msgspec.json.encode(items))


def continued(before: tuple[ChatMessage, ...], messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """A conversation with an input behind it. The answer that ends it counts once, where a client sends it
    again: known by its calls, or as the input's first message by its text."""
    if not before or before[-1].role != "assistant":
        return (*before, *messages)
    last = before[-1]
    known = {call["id"] for call in last.extra.get("tool_calls", ())}

    def is_last(place: int, message: ChatMessage) -> bool:
        if message.role != "assistant":
            return False
        if calls := message.extra.get("tool_calls"):
            return all(call["id"] in known for call in calls)
        return not place and not known and message.content == last.content

    return (*before, *(each for place, each in enumerate(messages) if not is_last(place, each)))


def read_input(raw: Raw, *, may_be_empty: bool = False) -> ReadInput:
    """What a text or a list of items says. Raises BadRequestError naming the item or part."""
    items = _decode_input(raw, "input")
    if isinstance(items, str):
        return ReadInput((ChatMessage(role="user", content=items, extra={}, param="input"),))
    if len(items) > MAX_MESSAGES:
        raise wrong("input", f"has {len(items)} items; allowed: up to {MAX_MESSAGES}")
    reader = _Reader()
    for index, item in enumerate(items):
        kind = _decode_kind(item, f"input[{index}]").type
        if kind not in (None, *_ITEMS):  # before fields that only other items have
            raise unsupported(f"input[{index}].type", f"is {kind[:40]!r}; served are {', '.join(_ITEMS)}")
        if kind == "mcp_list_tools":
            reader.listed.append(_decode_list(item, f"input[{index}]"))
        else:
            reader.add(_decode_item(item, f"input[{index}]"), f"input[{index}]")
    found = reader.finished()
    if not found.messages and not found.references and not may_be_empty:
        raise wrong("input", "has no items")
    return found


@dataclass(slots=True)
class _Reader:
    """Puts items together."""

    messages: list[ChatMessage] = field(default_factory=list)
    turn: AssistantTurn | None = None
    listed: list[McpListTools] = field(default_factory=list)
    requests: dict[str, McpApprovalRequest] = field(default_factory=dict)
    approvals: dict[str, Approval] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    shown: list[Part] = field(default_factory=list)
    """Files in results of functions: templates have them in what a user says, behind all of the results."""

    def add(self, item: _Item, param: str) -> None:
        """The next item."""
        if item.type not in ("function_call_output", "mcp_approval_response"):
            self._show(param)
        match item.type:
            case "message":
                self._add_message(item, param)
            case "function_call":
                self._add_call(item, given(item.call_id, f"{param}.call_id"), param)
            case "mcp_call":
                self._add_hosted(item, param)
            case "mcp_approval_request":
                name = given(item.id, f"{param}.id")
                self._add_call(item, call_id_of(name), param)
                label = given(item.server_label, f"{param}.server_label")
                self.requests[name] = McpApprovalRequest(
                    id=name, server_label=label, name=item.name or "", arguments=item.arguments or "{}"
                )
            case "mcp_approval_response":
                self._add_approval(item, param)
            case "item_reference":
                name = given(item.id, f"{param}.id")
                if name in self.references:
                    raise wrong(f"{param}.id", f"is {name[:80]!r} again")
                self.references[name] = f"{param}.id"
            case "function_call_output":
                self._add_result(item, param)
            case "reasoning":
                texts = item.content if isinstance(item.content, list) else []
                self._open(param, speaks=True).reasoning += (
                    _decode_reasoning_text(each, f"{param}.content[{index}]").text
                    for index, each in enumerate(texts)
                )

    def finished(self) -> ReadInput:
        """All of it."""
        self._close()
        self._show("input")
        return ReadInput(
            tuple(self.messages),
            tuple(self.listed),
            tuple(self.requests.values()),
            tuple(self.approvals.values()),
            self.references,
        )

    def _show(self, param: str) -> None:
        if self.shown:
            self.messages.append(ChatMessage(role="user", content=tuple(self.shown), extra={}, param=param))
            self.shown = []

    def _add_call(self, item: _Item, call_id: str, param: str) -> None:
        name = given(item.name, f"{param}.name")
        arguments = read_arguments(item.arguments or "{}", f"{param}.arguments")
        self._open(param).call(call_id, name, arguments)

    def _add_result(self, item: _Item, param: str) -> None:
        """What a function of the client's gave."""
        self._close()
        call_id = given(item.call_id, f"{param}.call_id")
        if item.output is None:
            raise missing(f"{param}.output")
        content = read_content(item.output, f"{param}.output", _part)
        if not isinstance(content, str):
            self.shown += (part for part in content if isinstance(part, MediaPart))
            content = tuple(part for part in content if isinstance(part, TextPart))
        self.messages.append(call_result(call_id, content, param))

    def _add_hosted(self, item: _Item, param: str) -> None:
        """A call that the server made: the call, if it was not asked about before, and its result."""
        name = given(item.id, f"{param}.id")
        if not isinstance(item.output, str | None):
            raise refuse(f"{param}.output", item.output, "a string")
        text = item.output if item.error is None and item.output is not None else failure_text(item.error)
        approval = self.approvals.pop(item.approval_request_id or "", None)
        if approval is not None:
            self.messages[approval.place] = replace(self.messages[approval.place], content=text)
            return
        if item.status in _UNMADE:
            return
        self._add_call(item, call_id_of(name), param)
        self._open(param).results.append(call_result(call_id_of(name), text, param))

    def _add_approval(self, item: _Item, param: str) -> None:
        self._close()
        name = given(item.approval_request_id, f"{param}.approval_request_id")
        if name in self.approvals:
            where = f"{param}.approval_request_id"
            raise wrong(where, f"is {name[:80]!r} again")
        approval = Approval(
            name, given(item.approve, f"{param}.approve"), item.reason or "", len(self.messages), param
        )
        self.approvals[name] = approval
        text = "" if approval.is_given else declined_text(approval.reason)
        self.messages.append(call_result(call_id_of(name), text, param))

    def _add_message(self, item: _Item, param: str) -> None:
        role = _ROLES.get(item.role or "")
        if role is None:
            raise refuse(f"{param}.role", item.role, ", ".join(_ROLES))
        if item.content is None:
            raise missing(f"{param}.content")
        content = read_content(item.content, f"{param}.content", _part)
        if role != "user":
            check_media(content, role)
        if role != "assistant":
            self._close()
            self.messages.append(ChatMessage(role=role, content=content, extra={}, param=param))
            return
        texts = (
            [content] if isinstance(content, str) else [p.text for p in content if isinstance(p, TextPart)]
        )
        self._open(param, speaks=True).texts.append("".join(texts))

    def _open(self, param: str, *, speaks: bool = False) -> AssistantTurn:
        """The turn that goes on; who `speaks` after results does so in a new one."""
        if speaks and self.turn is not None and self.turn.results:
            self._close()
        self.turn = self.turn or AssistantTurn(param)
        return self.turn

    def _close(self) -> None:
        turn, self.turn = self.turn, None
        if turn is not None:
            self.messages += turn.messages()


def _part(raw: Raw, param: str) -> Part | None:
    """A part that only this API has; None for those that chat has, too."""
    match _decode_kind(raw, param).type:
        case "input_image":
            image = _decode_image(raw, param)
            if image.file_id is not None:
                raise unsupported(f"{param}.file_id", "is not served; send the image as a data: URI")
            url = given(image.image_url, f"{param}.image_url")
            return in_detail(
                read_file("image", url, f"{param}.image_url", param), image.detail, f"{param}.detail"
            )
        case "output_text" | "refusal":
            return TextPart(_message_text(raw, param))
        case "input_file":
            raise unsupported(f"{param}.type", "is 'input_file'; images and audio are served")
    return None


def _message_text(raw: Raw, param: str) -> str:
    """Of a part of an answer, which has annotations and log-probabilities beside."""
    fields = msgspec.json.decode(raw)
    value = fields.get("text", fields.get("refusal"))
    if not isinstance(value, str):
        raise wrong(f"{param}.text", "is missing")
    return value
