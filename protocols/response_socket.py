"""The WebSocket of `/v1/responses`: what a client sends on it, and what it is told besides a stream's events.

A `response.create` has the fields of the body that is posted, which are `protocols/responses.py`. Read next:
`actors/http/response_socket.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from .body import decode_body, decoder, refuse
from .errors import ClientError, SensoriumError
from .responses import AskedResponse, ResponsesRequest, check_response

_CREATE: Final = "response.create"
_CANCEL: Final = "response.cancel"
_STREAM_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_DATA: Final = b"data: "


class _Kind(Struct, frozen=True):
    type: str


class _Lane(Struct, frozen=True):
    """Read from what cannot be read as a whole, so that its error has the name of its lane."""

    stream_id: str | None = None


class _Create(ResponsesRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    generate: bool | None = None
    stream_id: str | None = None


class ResponseCancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`response.cancel`: nothing more is wanted of a response that is being made."""

    response_id: str
    type: str = _CANCEL
    event_id: str | None = None


class ResponseCreate(Struct, frozen=True):
    """`response.create`, checked."""

    asked: AskedResponse
    is_warm_up: bool
    """Its prompt is computed, and nothing is said (`generate: false`)."""
    stream_id: str | None
    """What its client calls the lane that its events belong to."""


_read_kind: Final = msgspec.json.Decoder(_Kind)
_read_lane: Final = msgspec.json.Decoder(_Lane)
_decode_create: Final = decoder(_Create)
_decode_cancel: Final = decoder(ResponseCancel)


def parse_event(frame: bytes) -> ResponseCreate | ResponseCancel:
    """Read and check one frame of a client's. Raises ClientError naming the field."""
    kind = decode_body(frame, _read_kind).type
    if kind == _CANCEL:
        return _decode_cancel(frame)
    if kind != _CREATE:
        raise refuse("type", kind, f"{_CREATE}, {_CANCEL}")
    request = _decode_create(frame)
    if request.stream_id is not None and not _STREAM_ID.fullmatch(request.stream_id):
        error = refuse("stream_id", request.stream_id, "1 to 256 of A-Z, a-z, 0-9, _, - and .")
        error.code = "invalid_stream_id"
        raise error
    if request.background:
        raise refuse("background", request.background, "false, or posted without a WebSocket")
    asked = check_response(structs.replace(request, stream=True))
    return ResponseCreate(asked, request.generate is False, request.stream_id)


def lane_of(frame: bytes) -> str | None:
    """The `stream_id` of a frame that `parse_event` refuses, as far as it can be read."""
    try:
        found = decode_body(frame, _read_lane).stream_id
    except ClientError:
        return None
    return found if found is not None and _STREAM_ID.fullmatch(found) else None


def error_event(error: SensoriumError, stream_id: str | None = None) -> str:
    """What went wrong, where there is no response to tell it of."""
    detail = {"type": error.type, "code": error.code, "message": error.message, "param": error.param}
    told: dict[str, Any] = {"type": "error", "status": error.status, "error": detail}
    if stream_id is not None:
        told["stream_id"] = stream_id
    return msgspec.json.encode(told).decode()


def as_messages(frames: bytes, stream_id: str | None) -> Iterator[str]:
    """The events in server-sent frames, each as one message. JSON has no line breaks of its own."""
    mark = b"" if stream_id is None else b',"stream_id":"%s"}' % stream_id.encode()
    for line in frames.split(b"\n"):
        if line.startswith(_DATA):
            event = line[len(_DATA) :]
            yield (event if not mark else event[:-1] + mark).decode()
