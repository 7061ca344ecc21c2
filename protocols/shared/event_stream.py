"""OpenAI's error body, and what every stream of server-sent events has: keep-alive, error and end."""

from __future__ import annotations

from typing import Final

import msgspec

from ..errors import SensoriumError

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""SSE comment; clients ignore it."""


DONE: Final = b"data: [DONE]\n\n"
"""Ends every stream."""


def error_event(error: SensoriumError) -> bytes:
    """The SSE frame for a failure midway; the stream ends after it."""
    return b"data: " + error_body(error) + b"\n\n"


def error_body(error: SensoriumError) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}`; the HTTP status is `error.status`."""
    detail = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": detail})
