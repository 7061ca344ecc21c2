"""The WebSocket of `/v1/responses`: what a client sends on it, and what it is told besides a stream's events.

A `response.create` has the fields of the body that is posted, which are `protocols/responses/request.py`.
Read next: `actors/http/responses/websocket.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, structs

from ..errors import ClientError, SensoriumError
from ..shared.json_body import decode_body, decoder, missing, refuse
from .request import CheckedResponse, ResponsesRequest, check_response

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


class _Cancel(Struct, frozen=True):
    type: Literal["response.cancel"]
    response_id: str


class _Previous(Struct, frozen=True):
    previous_response_id: str | None = None


class ResponseCreate(Struct, frozen=True):
    """`response.create`, checked."""

    checked: CheckedResponse
    is_warm_up: bool
    """Its prompt is computed, and nothing is said (`generate: false`)."""
    stream_id: str | None
    """What its client calls the lane that its events belong to."""


_MAX_CANCEL_BYTES: Final = 1024
_read_kind: Final = msgspec.json.Decoder(_Kind)
_read_lane: Final = msgspec.json.Decoder(_Lane)
_read_previous: Final = msgspec.json.Decoder(_Previous)
_decode_create: Final = decoder(_Create)
_read_cancel: Final = msgspec.json.Decoder(_Cancel)


def cancelled_by(frame: bytes) -> str | None:
    """The response of which nothing more is wanted, where a frame is a `response.cancel` that names it."""
    if len(frame) > _MAX_CANCEL_BYTES:
        return None
    try:
        return decode_body(frame, _read_cancel).response_id
    except ClientError:
        return None


def parse_create(frame: bytes) -> ResponseCreate:
    """Read and check any other frame of a client's. Raises ClientError naming the field."""
    kind = decode_body(frame, _read_kind).type
    if kind == _CANCEL:
        raise missing("response_id")
    if kind != _CREATE:
        raise refuse("type", kind, f"{_CREATE}, {_CANCEL}")
    request = _decode_create(frame)
    if request.stream_id is not None and not _STREAM_ID.fullmatch(request.stream_id):
        error = refuse("stream_id", request.stream_id, "1 to 256 of A-Z, a-z, 0-9, '_', '.' and '-'")
        error.code = "invalid_stream_id"
        raise error
    if request.background:
        raise refuse("background", request.background, "false, or posted without a WebSocket")
    checked = check_response(structs.replace(request, stream=True))
    return ResponseCreate(checked, request.generate is False, request.stream_id)


def previous_of(frame: bytes) -> str | None:
    """The response that a frame goes on from, as far as it can be read."""
    try:
        return decode_body(frame, _read_previous).previous_response_id
    except ClientError:
        return None


def lane_of(frame: bytes) -> str | None:
    """The `stream_id` of a frame that `parse_create` refuses, as far as it can be read."""
    try:
        found = decode_body(frame, _read_lane).stream_id
    except ClientError:
        return None
    return found if found is not None and _STREAM_ID.fullmatch(found) else None


def error_event(error: SensoriumError) -> str:
    """What went wrong, where there is no response to tell it of."""
    detail = {"type": error.type, "code": error.code, "message": error.message, "param": error.param}
    body: dict[str, Any] = {"type": "error", "status": error.status, "error": detail}
    return msgspec.json.encode(body).decode()


def as_messages(frames: bytes, stream_id: str | None) -> Iterator[str]:
    """The events in server-sent frames, each as one message. JSON has no line breaks of its own."""
    mark = b"" if stream_id is None else b',"stream_id":"%s"}' % stream_id.encode()
    for line in frames.split(b"\n"):
        if line.startswith(_DATA):
            event = line[len(_DATA) :]
            yield (event if not mark else event[:-1] + mark).decode()
