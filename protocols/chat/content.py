"""Chat messages and their content parts: JSON → checked, with the media's bytes out of base64 and data URIs.

Errors name the part by its path (`messages[1].content[0]`). Knows no tokenizer and opens no media. Read next:
`protocols/chat/request.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..engine.messages import MediaKind
from ..errors import BadRequestError, TooLargeError, wrong
from ..shared.data_uri import (
    DATA_URI,
    HEAD_CHARS,
    from_base64,
    from_data_uri,
    inside,
    read_base64,
    read_data_uri,
)
from ..shared.json_body import decoder, given, missing, refuse, shown, unsupported
from .embeds import AudioEmbeds, Embeds, ImageEmbeds, read_embeds
from .frame_list import MAX_FRAMES, pack_frames

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
ROLES: Final[tuple[str, ...]] = get_args(Role)
"""Those of every model; a template may name others (`ipython`)."""
_ROLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

MAX_MESSAGES: Final = 4096
MAX_PARTS: Final = 4096
"""Of one message."""
_MAX_NAME: Final = 256
_MAX_FPS: Final = 1000
_MAX_ADDRESS: Final = 8192
_AUDIO_FORMATS: Final = frozenset({"wav", "mp3", "flac", "ogg", "opus", "m4a", "aac", "webm", "mp4"})
_DETAILS: Final = ("auto", "low", "high", "original")
"""All but `low`: as it is, up to the model's own size."""
_MEDIA_FIELDS: Final[dict[str, MediaKind]] = {
    "image_url": "image",
    "video_url": "video",
    "audio_url": "audio",
    "input_audio": "audio",
    "image_embeds": "image",
    "audio_embeds": "audio",
}
_KINDS: Final = ("text", "refusal", *_MEDIA_FIELDS)
_EMPTY: Final = (b"null", b"[]", b'""')
_PARTS: Final = "text, image_url, input_audio, audio_url, video_url, image_embeds, audio_embeds"


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text."""

    text: str


@dataclass(frozen=True, slots=True)
class MediaAddress:
    """Where a file is: an http:, https: or file: address; `param` is its field's path in the request."""

    url: str
    param: str


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An encoded file as it came; `param` is the part's path in the request.

    With an `address` it has no data yet: the file is there. `name` is the client's own (`uuid`); with a name
    alone it is the file that was sent under that name before. `is_low`: an image of which few pixels will do
    (`detail`). With `embeds` it is no file, but what a model's encoder made of one."""

    kind: MediaKind
    data: bytes
    param: str
    address: MediaAddress | None = None
    name: str = ""
    is_low: bool = False
    embeds: Embeds | None = None


Part = TextPart | MediaPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One checked message. `extra` are the fields templates know beside role and content."""

    role: str
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
    url: Raw | UnsetType = UNSET
    detail: str | None = None

    @property
    def is_empty(self) -> bool:
        return isinstance(self.url, UnsetType) or bytes(memoryview(self.url)[:4]) in _NOTHING


class _InputAudio(Struct, frozen=True, forbid_unknown_fields=True):
    data: Raw | UnsetType = UNSET
    """Base64."""
    format: str = "wav"

    @property
    def is_empty(self) -> bool:
        return isinstance(self.data, UnsetType) or bytes(memoryview(self.data)[:4]) in _NOTHING


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    type: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    image_url: _Url | UnsetType | None = UNSET
    video_url: _Url | UnsetType | None = UNSET
    audio_url: _Url | UnsetType | None = UNSET
    input_audio: _InputAudio | UnsetType | None = UNSET
    image_embeds: ImageEmbeds | UnsetType | None = UNSET
    audio_embeds: AudioEmbeds | UnsetType | None = UNSET
    uuid: str | None = None
    """A name for the file, by which it may be asked about again without it."""
    cache_control: Raw | UnsetType = UNSET
    prompt_cache_breakpoint: Raw | UnsetType = UNSET
    """Both change no answer: whatever fits is cached."""


_NOTHING: Final = (b"null", b'""')
_decode_message = decoder(_Message)
_decode_part = decoder(_Part)
_decode_text = decoder(str)


def read_messages(raw: list[Raw]) -> tuple[ChatMessage, ...]:
    """Check all messages. Raises BadRequestError naming the message or part."""
    if not 0 < len(raw) <= MAX_MESSAGES:
        raise wrong("messages", f"has {len(raw)} entries; allowed: 1 to {MAX_MESSAGES}")
    return tuple(_message(each, f"messages[{index}]") for index, each in enumerate(raw))


def _message(raw: Raw, param: str) -> ChatMessage:
    message = _decode_message(raw, param)
    role = message.role
    if not _ROLE.fullmatch(role):
        raise refuse(f"{param}.role", role, ", ".join(ROLES))
    for name in ("refusal", "annotations", "audio", "function_call"):
        if getattr(message, name) is not UNSET and bytes(getattr(message, name)) not in _EMPTY:
            raise unsupported(f"{param}.{name}", "is not served")
    content = message.content
    if content is None and role != "assistant":
        raise missing(f"{param}.content")
    parts = None if content is None else read_content(content, f"{param}.content")
    if role not in {"user", "tool"}:
        check_media(parts, role)
    return ChatMessage(role=role, content=parts, extra=_extra(message, param), param=param)


def read_content(
    content: str | list[Raw], param: str, read: Callable[[Raw, str], Part | None] = lambda *_: None
) -> str | tuple[Part, ...]:
    """A message's content; `read` is asked for each part first, and gives None for those of chat."""
    if isinstance(content, str):
        return content
    if len(content) > MAX_PARTS:
        raise wrong(param, f"has {len(content)} parts; allowed: up to {MAX_PARTS}")
    places = ((each, f"{param}[{index}]") for index, each in enumerate(content))
    return tuple(read(each, place) or _part(each, place) for each, place in places)


def check_media(content: str | tuple[Part, ...] | None, role: str) -> None:
    """Raise BadRequestError for media in a message of someone who does not send any."""
    found = next((part for part in content or () if isinstance(part, MediaPart)), None)
    if found is not None:
        raise BadRequestError(f"`{found.param}`: a {role} message holds text only", param=found.param)


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
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise wrong(f"{param}.function.name", "is missing")
    arguments = read_arguments(function.get("arguments", {}), f"{param}.function.arguments")
    return {**call, "function": {**function, "arguments": arguments}}


def read_object(text: str) -> dict[str, Any] | None:
    """What somebody wrote as a JSON object, where nothing is an empty one; None for what is none."""
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_arguments(arguments: object, param: str) -> dict[str, Any]:
    """A call's arguments as an object, as templates expect them; OpenAI sends them as a string of JSON."""
    if isinstance(arguments, str):
        arguments = read_object(arguments)
    if not isinstance(arguments, dict):
        raise wrong(param, "must be a JSON object")
    return arguments


def _part(raw: Raw, param: str) -> Part:
    part = _decode_part(raw, param)
    kind = part.type
    if kind is UNSET:  # clients leave it out; the one key that is there says it
        kind = next((name for name in _KINDS if getattr(part, name) is not UNSET), "nothing")
    name = _name(part.uuid, f"{param}.uuid")
    if name and kind in _MEDIA_FIELDS and _is_empty(getattr(part, kind)):
        embeds = Embeds() if kind.endswith("_embeds") else None
        return MediaPart(_MEDIA_FIELDS[kind], b"", param, name=name, embeds=embeds)
    found = _filled_part(part, kind, param)
    return replace(found, name=name) if name and isinstance(found, MediaPart) else found


def _is_empty(file: object) -> bool:
    """Whether a part leaves its file out, to name it only: clients write null or an empty object."""
    return file in (None, UNSET) or (isinstance(file, _Url | _InputAudio) and file.is_empty)


def _name(uuid: str | None, param: str) -> str:
    if uuid is not None and not 0 < len(uuid) <= _MAX_NAME:
        raise refuse(param, uuid, f"1 to {_MAX_NAME} characters")
    return uuid or ""


def _filled_part(part: _Part, kind: str, param: str) -> Part:
    match kind:
        case "text" | "input_text" | "output_text":
            return TextPart(given(part.text, f"{param}.text"))
        case "refusal":
            return TextPart(given(part.refusal, f"{param}.refusal"))
        case "image_url" | "video_url" | "audio_url":
            address: _Url = given(getattr(part, kind), f"{param}.{kind}")
            url = given(address.url, f"{param}.{kind}.url")
            found = read_file(_MEDIA_FIELDS[kind], url, f"{param}.{kind}.url", param)
            if kind != "image_url":
                return found
            return in_detail(found, address.detail, f"{param}.image_url.detail")
        case "input_audio":
            audio = given(part.input_audio, f"{param}.input_audio")
            if audio.format not in _AUDIO_FORMATS:
                raise refuse(f"{param}.input_audio.format", audio.format, ", ".join(sorted(_AUDIO_FORMATS)))
            where = f"{param}.input_audio.data"
            return MediaPart("audio", read_base64(given(audio.data, where), where), param)
        case "image_embeds":
            data, embeds = read_embeds(given(part.image_embeds, f"{param}.{kind}"), f"{param}.{kind}")
            return MediaPart("image", data, param, embeds=embeds)
        case "audio_embeds":
            data, embeds = read_embeds(given(part.audio_embeds, f"{param}.{kind}"), f"{param}.{kind}")
            return MediaPart("audio", data, param, embeds=embeds)
    raise refuse(f"{param}.type", kind, _PARTS)


def in_detail(part: MediaPart, detail: str | None, param: str) -> MediaPart:
    """An image as closely looked at as `detail` says. Raises BadRequestError naming `param`."""
    if detail not in (None, *_DETAILS):
        raise refuse(param, detail, ", ".join(_DETAILS))
    return replace(part, is_low=True) if detail == "low" else part


def read_file(kind: MediaKind, url: Raw, param: str, part: str) -> MediaPart:
    """The part `part` with the file of a `data:` URI, or with the address of one; `param` is the URL's field.

    Raises BadRequestError naming `param`."""
    if bytes(memoryview(url)[1 : 1 + len("data:")]).lower() != b"data:":
        return MediaPart(kind, b"", part, MediaAddress(read_address(_decode_text(url, param), param), param))
    return MediaPart(kind, _read_clip(url, param) if kind == "video" else read_data_uri(url, param), part)


def _read_clip(url: Raw, param: str) -> bytes:
    """A clip, or the pictures of one: of the type video/jpeg, with commas between them."""
    text = inside(memoryview(url), param)
    head = DATA_URI.match(bytes(text[:HEAD_CHARS]).decode("utf-8", "replace"))
    if head is None or (head["type"] or "").lower() != "video/jpeg":
        return from_data_uri(text, param)
    whole = bytes(text[head.end() :])
    num_frames = whole.count(b",") + 1
    if num_frames > MAX_FRAMES:
        raise TooLargeError(f"`{param}` has {num_frames} frames; the limit is {MAX_FRAMES}", param=param)
    fields = dict(field.lower().split("=", 1) for field in head["params"].split(";") if field)
    frames = [from_base64(memoryview(frame), param) for frame in whole.split(b",")]
    return pack_frames(frames, _rate(fields.get("fps"), param))


def _rate(fps: str | None, param: str) -> float:
    try:
        rate = 0.0 if fps is None else float(fps)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= _MAX_FPS or (fps is not None and not rate):
        raise refuse(param, f"fps={fps}", f"a rate above 0, up to {_MAX_FPS}")
    return rate


def read_address(url: str, param: str) -> str:
    """An http:, https: or file: address as it is, if it holds nothing that parsers might read differently.

    Raises BadRequestError naming `param`."""
    head, mark, _ = url.partition("://")
    is_known = mark and head.lower() in ("http", "https", "file") and len(url) <= _MAX_ADDRESS
    if not is_known or any(not each.isprintable() or each in " \\" for each in url):
        raise wrong(
            param,
            f"is {shown(url)}; allowed: an http:, https: or file: address of up to {_MAX_ADDRESS} "
            "characters without spaces and backslashes, or a data: URI in base64",
            code="invalid_url",
        )
    return head.lower() + url[len(head) :]
