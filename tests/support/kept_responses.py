"""Responses to keep, in tests of what keeps them."""

from __future__ import annotations

from typing import Final

import msgspec
from sensorium.actors.callers import Caller, caller_by_key
from sensorium.actors.http.responses.row_codec import KeptResponse
from sensorium.protocols.chat.content import ChatMessage, MediaPart, TextPart
from sensorium.protocols.responses.output_items import ResponseObject, ResponseStatus

MINE: Final = caller_by_key("mine")
YOURS: Final = caller_by_key("yours")


def kept(
    name: str,
    owner: Caller = MINE,
    size: int = 0,
    *,
    status: ResponseStatus = "completed",
    image: bytes | None = None,
) -> KeptResponse:
    """One of about `size` bytes, half of them an image, if that is not given."""
    response = ResponseObject(
        id=name,
        created_at=1,
        status=status,
        model="m",
        output=[],
        parallel_tool_calls=True,
        tool_choice=msgspec.Raw(b'"auto"'),
        tools=msgspec.Raw(b"[]"),
        instructions=msgspec.Raw(b"null"),
        text=msgspec.Raw(b"{}"),
        reasoning={},
    )
    picture = b"a" * (size // 2) if image is None else image
    content = (TextPart("a" * (size // 2)), MediaPart("image", picture, "input[0]"))
    message = ChatMessage(role="user", content=content, extra={}, param="input")
    return KeptResponse(owner, response, [msgspec.Raw(b"{}")], (message,))
