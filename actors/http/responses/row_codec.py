"""A kept response ↔ bytes for a file; the files in its conversation stay apart, known by their digests.

Knows no database; `actors/http/responses/sqlite_store.py` is that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, structs

from ....protocols.chat.content import ChatMessage, MediaAddress, MediaPart, Part, TextPart
from ....protocols.chat.embeds import Embeds
from ....protocols.engine.messages import MediaKind
from ....protocols.realtime.invalid_frames import MALFORMED
from ....protocols.responses.output_items import McpListTools, ResponseFault, ResponseObject
from ...callers import Caller

ENDED: Final = ResponseFault("server_error", "The server ended before this response was made.")
_UNFINISHED: Final = ("queued", "in_progress")


class UnreadableRowError(ValueError):
    """A row that this program has not written, or another version of it has."""


@dataclass(slots=True)
class KeptResponse:
    """A response, what it was asked with, and the conversation it ends, without instructions."""

    owner: Caller
    response: ResponseObject
    input_items: list[Raw]
    messages: tuple[ChatMessage, ...]
    """Up to and with its input; the answer's own message is added when it is there."""
    listed: tuple[McpListTools, ...] = ()
    """What MCP servers have told of their tools in this conversation."""
    within: object = None
    """The connection that alone may go on from it, while it is open; None: whoever owns it."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.response.status not in _UNFINISHED


@dataclass(frozen=True, slots=True)
class Row:
    """One in a file."""

    body: bytes
    media: Mapping[str, bytes] = field(repr=False)
    """Files by their digests."""


class _Text(Struct, frozen=True, array_like=True, tag="text"):
    text: str


class _Media(Struct, frozen=True, array_like=True, tag="media"):
    kind: MediaKind
    digest: str
    param: str
    url: str | None
    url_param: str
    name: str
    is_low: bool = False
    embeds: Embeds | None = None


class _Message(Struct, frozen=True, array_like=True):
    role: str
    content: str | list[_Text | _Media] | None
    extra: dict[str, Any]
    param: str


class _Earlier(ResponseObject, frozen=True, kw_only=True):
    """A response as files of before have it, with nulls that are none any more."""

    temperature: float | None = None  # type: ignore[assignment]
    top_p: float | None = None  # type: ignore[assignment]
    top_logprobs: int | None = None  # type: ignore[assignment]


class _Body(Struct, frozen=True, array_like=True):
    response: bytes | dict[str, Any]
    """JSON; as an object in files of before, which are still read."""
    input_items: list[bytes]
    messages: list[_Message]
    listed: list[McpListTools] = []


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Body).decode
_read_json: Final = msgspec.json.Decoder(_Body).decode
_read_earlier: Final = msgspec.json.Decoder(_Earlier).decode
_JSON_BEGINS: Final = b"["
"""No body in MessagePack does."""


def to_row(kept: KeptResponse) -> Row:
    """Takes a while where there are large files: not for the loop."""
    media: dict[str, bytes] = {}
    messages = [
        _Message(each.role, _written(each.content, media), each.extra, each.param) for each in kept.messages
    ]
    response = msgspec.json.encode(kept.response)
    body = _Body(response, [bytes(item) for item in kept.input_items], messages, list(kept.listed))
    try:
        return Row(_encode(body), media)
    except OverflowError:  # a call has an integer of more than 64 bits, which JSON may have
        return Row(msgspec.json.encode(body), media)


def from_row(owner: Caller, row: Row) -> KeptResponse:
    """Raises UnreadableRowError for what this program has not written."""
    try:
        return _from_row(owner, row)
    except (*MALFORMED, LookupError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableRowError(f"{type(error).__name__}: {str(error)[:100]}") from error


def _from_row(owner: Caller, row: Row) -> KeptResponse:
    body = (_read_json if row.body.startswith(_JSON_BEGINS) else _decode)(row.body)
    messages = tuple(
        ChatMessage(
            role=each.role, content=_read(each.content, row.media), extra=each.extra, param=each.param
        )
        for each in body.messages
    )
    items = [Raw(item) for item in body.input_items]
    response = body.response if isinstance(body.response, bytes) else msgspec.json.encode(body.response)
    return KeptResponse(owner, _read_response(response), items, messages, tuple(body.listed))


def _read_response(response: bytes) -> ResponseObject:
    fields = structs.asdict(_read_earlier(response))
    optional = ("temperature", "top_p", "top_logprobs")
    return ResponseObject(
        **{name: value for name, value in fields.items() if value is not None or name not in optional}
    )


def _written(
    content: str | tuple[Part, ...] | None, media: dict[str, bytes]
) -> str | list[_Text | _Media] | None:
    if content is None or isinstance(content, str):
        return content
    return [_written_part(part, media) for part in content]


def _written_part(part: Part, media: dict[str, bytes]) -> _Text | _Media:
    if isinstance(part, TextPart):
        return _Text(part.text)
    digest = hashlib.sha256(part.data).hexdigest() if part.data else ""
    if digest:
        media[digest] = part.data
    address = part.address
    return _Media(
        part.kind,
        digest,
        part.param,
        None if address is None else address.url,
        "" if address is None else address.param,
        part.name,
        part.is_low,
        part.embeds,
    )


def _read(
    content: str | list[_Text | _Media] | None, media: Mapping[str, bytes]
) -> str | tuple[Part, ...] | None:
    if content is None or isinstance(content, str):
        return content
    return tuple(TextPart(each.text) if isinstance(each, _Text) else _part(each, media) for each in content)


def _part(part: _Media, media: Mapping[str, bytes]) -> MediaPart:
    address = None if part.url is None else MediaAddress(part.url, part.url_param)
    data = media[part.digest] if part.digest else b""
    return MediaPart(part.kind, data, part.param, address, part.name, part.is_low, part.embeds)
