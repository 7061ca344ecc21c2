"""Chat messages and their content parts: JSON → checked, with the media's bytes out of base64 and data URIs.

Errors name the part by its path (`messages[1].content[0]`). Knows no tokenizer and opens no media. Read next:
`protocols/chat.py`.
"""

from __future__ import annotations

import binascii
import io
import re
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from .body import decoder, refuse, shown, unsupported
from .errors import BadRequestError

_V = TypeVar("_V")

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
MediaKind = Literal["image", "audio", "video"]

MAX_MESSAGES: Final = 4096
MAX_PARTS: Final = 4096
"""Of one message."""
_DATA_URI: Final = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?P<params>(?:;[\w.+-]+=[^;,]*)*);base64,")
_HEAD_CHARS: Final = 256
_SLICE: Final = 1 << 18
"""Characters of base64 decoded in one call; a multiple of 4."""
_AUDIO_FORMATS: Final = frozenset({"wav", "mp3", "flac", "ogg", "opus", "m4a", "aac", "webm", "mp4"})
_DETAILS: Final = (None, "auto", "high")
"""Images are looked at as they are, up to the model's own size."""
_KINDS: Final = ("text", "refusal", "image_url", "video_url", "input_audio")
_EMPTY: Final = (b"null", b"[]", b'""')
_PARTS: Final = "text, image_url, input_audio, video_url"


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text."""

    text: str


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An encoded file as it came; `param` is the part's path in the request."""

    kind: MediaKind
    data: bytes
    param: str


Part = TextPart | MediaPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One checked message. `extra` are the fields templates know beside role and content."""

    role: Role
    content: str | tuple[Part, ...] | None
    extra: dict[str, Any]
    param: str


class _Message(Struct, frozen=True, forbid_unknown_fields=True):
    role: str
    content: str | list[Raw] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    # What an answer of OpenAI's has beside, and is sent back with it: nothing, else it is refused.
    refusal: Raw | UnsetType = UNSET
    annotations: Raw | UnsetType = UNSET
    audio: Raw | UnsetType = UNSET
    function_call: Raw | UnsetType = UNSET


class _Url(Struct, frozen=True, forbid_unknown_fields=True):
    url: Raw
    detail: str | None = None


class _InputAudio(Struct, frozen=True, forbid_unknown_fields=True):
    data: Raw
    """Base64."""
    format: str = "wav"


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    type: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    image_url: _Url | UnsetType = UNSET
    video_url: _Url | UnsetType = UNSET
    input_audio: _InputAudio | UnsetType = UNSET
    uuid: Raw | UnsetType = UNSET
    cache_control: Raw | UnsetType = UNSET
    """These two change no answer: contents are known by their hashes, and whatever fits is cached."""


_decode_message = decoder(_Message)
_decode_part = decoder(_Part)
_decode_text = decoder(str)


def read_messages(raw: list[Raw]) -> tuple[ChatMessage, ...]:
    """Check all messages. Raises BadRequestError naming the message or part."""
    if not 0 < len(raw) <= MAX_MESSAGES:
        raise BadRequestError(
            f"`messages` has {len(raw)} entries; allowed: 1 to {MAX_MESSAGES}.", param="messages"
        )
    return tuple(_message(each, f"messages[{index}]") for index, each in enumerate(raw))


def _message(raw: Raw, param: str) -> ChatMessage:
    message = _decode_message(raw, param)
    role = next((known for known in get_args(Role) if known == message.role), None)
    if role is None:
        raise refuse(f"{param}.role", message.role, ", ".join(get_args(Role)))
    for name in ("refusal", "annotations", "audio", "function_call"):
        if getattr(message, name) is not UNSET and bytes(getattr(message, name)) not in _EMPTY:
            raise unsupported(f"{param}.{name}", "is not served")
    content = message.content
    if content is None and role != "assistant":
        raise BadRequestError(
            f"`{param}.content` is missing.", param=f"{param}.content", code="missing_required_parameter"
        )
    if isinstance(content, list) and len(content) > MAX_PARTS:
        raise BadRequestError(
            f"`{param}.content` has {len(content)} parts; allowed: up to {MAX_PARTS}.",
            param=f"{param}.content",
        )
    parts = (
        tuple(_part(each, f"{param}.content[{index}]") for index, each in enumerate(content))
        if isinstance(content, list)
        else content
    )
    found = [part for part in parts or () if isinstance(part, MediaPart)]
    if found and role != "user":
        raise BadRequestError(f"`{found[0].param}`: a {role} message holds text only.", param=found[0].param)
    return ChatMessage(role=role, content=parts, extra=_extra(message, param), param=param)


def _extra(message: _Message, param: str) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    for name in ("name", "tool_call_id"):
        if getattr(message, name) is not None:
            extra[name] = getattr(message, name)
    if (reasoning := message.reasoning_content or message.reasoning) is not None:
        extra["reasoning_content"] = reasoning
    if message.tool_calls:
        extra["tool_calls"] = [
            _tool_call(call, f"{param}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls)
        ]
    return extra


def _tool_call(call: dict[str, Any], param: str) -> dict[str, Any]:
    """With its arguments as an object, as templates expect them; OpenAI sends them as a string of JSON."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequestError(f"`{param}.function.name` is missing.", param=f"{param}.function.name")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except (msgspec.DecodeError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise BadRequestError(
            f"`{param}.function.arguments` must be a JSON object.", param=f"{param}.function.arguments"
        )
    return {**call, "function": {**function, "arguments": arguments}}


def _part(raw: Raw, param: str) -> Part:
    part = _decode_part(raw, param)
    kind = part.type
    if kind is UNSET:  # clients leave it out; the one key that is there says it
        kind = next((name for name in _KINDS if getattr(part, name) is not UNSET), "nothing")
    match kind:
        case "text" | "input_text" | "output_text":
            return TextPart(_required(part.text, f"{param}.text"))
        case "refusal":
            return TextPart(_required(part.refusal, f"{param}.refusal"))
        case "image_url":
            image = _required(part.image_url, f"{param}.image_url")
            if image.detail not in _DETAILS:
                raise refuse(f"{param}.image_url.detail", image.detail, "auto, high")
            return MediaPart("image", _data(image.url, param, kind), param)
        case "video_url":
            return MediaPart(
                "video", _data(_required(part.video_url, f"{param}.video_url").url, param, kind), param
            )
        case "input_audio":
            audio = _required(part.input_audio, f"{param}.input_audio")
            if audio.format not in _AUDIO_FORMATS:
                raise refuse(f"{param}.input_audio.format", audio.format, ", ".join(sorted(_AUDIO_FORMATS)))
            data, where = memoryview(audio.data), f"{param}.input_audio.data"
            return MediaPart("audio", _from_base64(_inside(data, where), where), param)
    raise refuse(f"{param}.type", kind, _PARTS)


def _required(value: _V | UnsetType, param: str) -> _V:
    if value is UNSET:
        raise BadRequestError(f"`{param}` is missing.", param=param, code="missing_required_parameter")
    return value


def _inside(text: memoryview, param: str) -> memoryview:
    """What is between the quotes of a JSON string, its escapes undone."""
    slices = (bytes(text[at : at + _SLICE]) for at in range(0, len(text), _SLICE))
    if bytes(text[:1]) != b'"' or any(b"\\" in each for each in slices):
        return memoryview(_decode_text(Raw(text), param).encode("utf-8", "replace"))
    return text[1:-1]


def _data(url: Raw, part: str, kind: str) -> bytes:
    """The bytes of a `data:` URI."""
    param = f"{part}.{kind}.url"
    text = _inside(memoryview(url), param)
    start = bytes(text[:_HEAD_CHARS]).decode("utf-8", "replace")
    if start[:8].lower().startswith(("http://", "https://")):
        raise BadRequestError(
            f"`{param}`: addresses are not fetched here; send the file as a data: URI "
            "(data:image/png;base64,…).",
            param=param,
            code="unsupported_url",
        )
    head = _DATA_URI.match(start)
    if head is None:
        raise BadRequestError(
            f"`{param}` is {shown(start)}; allowed: a data: URI in base64 (data:image/png;base64,…).",
            param=param,
        )
    return _from_base64(text[head.end() :], param)


def _from_base64(text: memoryview, param: str) -> bytes:
    """Slice by slice: a thread that decodes tens of megabytes in one call keeps all others from running."""
    found = io.BytesIO()
    try:
        for at in range(0, len(text), _SLICE):
            size = found.write(binascii.a2b_base64(text[at : at + _SLICE], strict_mode=True))
            if at + _SLICE < len(text) and size < _SLICE // 4 * 3:
                raise binascii.Error("padding before the end")
    except binascii.Error:
        raise BadRequestError(f"`{param}` is not valid base64.", param=param) from None
    return found.getvalue()
