"""Conversation items of a live session that answers: what a client creates, and how items are shown.

Shapes are OpenAI's GA items: messages, calls of tools, and what those gave. A client's item becomes a
`NewItem`, with its pictures and sounds out of base64; what is wrong with one is a BadRequestError that names
the field from `item` on. Items are shown without their media: a client has those. Events that carry items are
in `protocols/realtime/events.py`, what becomes of them in `realtime/dialogue/items.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from ..chat.content import TextPart, read_arguments
from ..errors import BadRequestError, wrong
from ..shared.data_uri import read_base64, read_data_uri
from ..shared.json_body import decoder, given, missing, refuse

ItemStatus = Literal["completed", "incomplete", "in_progress"]
ItemRole = Literal["user", "assistant", "system"]
ImageDetail = Literal["auto", "low", "high"]

MAX_ITEM_ID: Final = 128
MAX_PARTS: Final = 64
"""Of one item."""
ClientItemId = Annotated[str, Meta(min_length=1, max_length=MAX_ITEM_ID)]


# --- as shown ------------------------------------------------------------------------------------------


class InputTextContent(Struct, frozen=True, tag_field="type", tag="input_text"):
    """Text of a user or of the system."""

    text: str


class InputImageContent(Struct, frozen=True, tag_field="type", tag="input_image"):
    """A picture, which is not sent back. `timestamps_ms` (extension): it was frames of live video."""

    detail: ImageDetail = "auto"
    timestamps_ms: list[int] | UnsetType = UNSET


class InputAudioContent(Struct, frozen=True, tag_field="type", tag="input_audio"):
    """Speech, which is not sent back; its transcript, where there is one, comes in events of its own."""

    transcript: str | None = None


class OutputTextContent(Struct, frozen=True, tag_field="type", tag="output_text"):
    """Text of an answer."""

    text: str


InputContent = InputTextContent | InputImageContent | InputAudioContent


class Message(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """What was said or shown: an item that was created, a committed turn, or an answer."""

    id: str
    role: ItemRole
    object: Literal["realtime.item"] = "realtime.item"
    status: ItemStatus = "completed"
    content: list[InputContent | OutputTextContent]


class FunctionCallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A tool that the model calls, `arguments` as JSON; `call_id` is what its output names."""

    id: str
    object: Literal["realtime.item"] = "realtime.item"
    status: ItemStatus = "completed"
    call_id: str
    name: str
    arguments: str


class FunctionCallOutputItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call_output"):
    """What a call gave."""

    id: str
    object: Literal["realtime.item"] = "realtime.item"
    status: ItemStatus = "completed"
    call_id: str
    output: str


ConversationItem = Message | FunctionCallItem | FunctionCallOutputItem


# --- from the client -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picture:
    """An encoded image."""

    data: bytes
    detail: ImageDetail = "auto"


@dataclass(frozen=True, slots=True)
class AudioGiven:
    """A part that is speech in the session's input format, and what is said in it where the client knows."""

    data: bytes
    transcript: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool; `arguments` are a JSON object, and there once the model has written them."""

    call_id: str
    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class CallOutput:
    """What a call gave."""

    call_id: str
    output: str


PartGiven = TextPart | Picture | AudioGiven | Call | CallOutput


@dataclass(frozen=True, slots=True)
class NewItem:
    """What a client wants in the conversation; `param` is where it stands in the event. A call of a tool is
    the assistant's, what it gave the user's; each is the only part of its item."""

    role: ItemRole
    parts: tuple[PartGiven, ...]
    id: str | None = None
    param: str = "item"


@dataclass(frozen=True, slots=True)
class ItemReference:
    """An item of the conversation, by its id; `param` is where it stands in the event."""

    id: str
    param: str = "item"


class _Item(Struct, frozen=True, forbid_unknown_fields=True):
    type: str = "message"
    id: str | None = None
    object: str | None = None
    status: str | None = None
    role: str | None = None
    content: list[Raw] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | None = None


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    text: str | UnsetType | None = UNSET
    image_url: Raw | UnsetType = UNSET
    detail: ImageDetail | UnsetType | None = UNSET
    audio: Raw | UnsetType = UNSET
    transcript: str | UnsetType | None = UNSET


_ROLES: Final[dict[str, ItemRole]] = {"user": "user", "assistant": "assistant", "system": "system"}
_KINDS: Final[dict[ItemRole, tuple[str, ...]]] = {
    "user": ("input_text", "input_image", "input_audio"),
    "system": ("input_text",),
    "assistant": ("output_text",),
}
_TYPES: Final = "message, function_call, function_call_output"
_decode_item = decoder(_Item)
_decode_part = decoder(_Part)


def read_item(raw: Raw) -> NewItem:
    """Check the `item` of a `conversation.item.create`. Raises BadRequestError naming the field."""
    return _new_item(_decode_item(raw, "item"), "item", _TYPES)


def read_input(raw: list[Raw]) -> tuple[NewItem | ItemReference, ...]:
    """Check the `input` of a response: new items, and references to items of the conversation."""
    found: list[NewItem | ItemReference] = []
    for index, each in enumerate(raw):
        where = f"response.input[{index}]"
        item = _decode_item(each, where)
        if item.type == "item_reference":
            found.append(ItemReference(_id(item.id, where, is_needed=True) or "", where))
        else:
            found.append(_new_item(item, where, f"{_TYPES}, item_reference"))
    return tuple(found)


def _refused_type(kind: str, param: str, allowed: str) -> BadRequestError:
    error = refuse(f"{param}.type", kind, allowed)
    error.code = "unsupported_item"
    return error


def _new_item(item: _Item, param: str, allowed: str) -> NewItem:
    match item.type:
        case "message":
            return _message(item, param)
        case "function_call":
            call_id = _short(item.call_id, f"{param}.call_id")
            arguments = given(item.arguments, f"{param}.arguments")
            read_arguments(arguments, f"{param}.arguments")
            call = Call(call_id, _short(item.name, f"{param}.name"), arguments)
            return NewItem("assistant", (call,), _id(item.id, param), param)
        case "function_call_output":
            output = CallOutput(
                _short(item.call_id, f"{param}.call_id"), given(item.output, f"{param}.output")
            )
            return NewItem("user", (output,), _id(item.id, param), param)
        case _:
            raise _refused_type(item.type, param, allowed)


def _short(value: str | None, param: str) -> str:
    """A name or an id."""
    found = given(value, param)
    if not 1 <= len(found) <= MAX_ITEM_ID:
        raise refuse(param, found, f"1 to {MAX_ITEM_ID} characters")
    return found


def _message(item: _Item, param: str) -> NewItem:
    role = _ROLES.get(item.role or "")
    if role is None:
        raise refuse(f"{param}.role", item.role, ", ".join(_ROLES))
    parts = item.content
    if not parts:
        raise missing(f"{param}.content")
    if len(parts) > MAX_PARTS:
        raise wrong(f"{param}.content", f"has {len(parts)} parts; allowed: up to {MAX_PARTS}")
    read = tuple(_part(each, role, f"{param}.content[{index}]") for index, each in enumerate(parts))
    return NewItem(role, read, _id(item.id, param), param)


def _id(value: str | None, param: str, *, is_needed: bool = False) -> str | None:
    if value is None and not is_needed:
        return None
    if not value or len(value) > MAX_ITEM_ID:
        raise refuse(f"{param}.id", value, f"1 to {MAX_ITEM_ID} characters")
    return value


def _part(raw: Raw, role: ItemRole, param: str) -> PartGiven:
    part = _decode_part(raw, param)
    if part.type not in _KINDS[role]:
        raise refuse(f"{param}.type", part.type, f"{', '.join(_KINDS[role])} in a {role} message")
    match part.type:
        case "input_image":
            data = read_data_uri(_file(part.image_url, f"{param}.image_url"), f"{param}.image_url")
            return Picture(data, part.detail or "auto")
        case "input_audio":
            audio = _file(part.audio, f"{param}.audio")
            return AudioGiven(read_base64(audio, f"{param}.audio"), part.transcript or None)
        case _:
            return TextPart(given(part.text, f"{param}.text"))


def _file(value: Raw | UnsetType, param: str) -> Raw:
    return given(None if isinstance(value, Raw) and bytes(value) == b"null" else value, param)
