"""The REST routes of live sessions, as the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..openapi.operation import Operation, Operations, Schema
from .client_secrets import ClientSecret, ClientSecretRequest

REALTIME_QUERY: Final[Mapping[str, Schema]] = {
    "model": {"type": "string", "description": "What transcribes, or answers."},
    "intent": {
        "enum": ["transcription", "realtime"],
        "description": "Whether the session transcribes, or answers; if it is not said, as the model can.",
    },
}

OPERATIONS: Final = Operations(
    paths={
        "/v1/realtime": (
            Operation(summary="A live session, over a WebSocket", query=REALTIME_QUERY, is_websocket=True),
        ),
        "/v1/realtime/client_secrets": (
            Operation(
                summary="A short-lived key for live sessions",
                method="post",
                body=ClientSecretRequest,
                is_body_needed=False,
                answers=(ClientSecret,),
            ),
        ),
    }
)
