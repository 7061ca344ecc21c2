"""The dialects that this server has. A new one is a line here."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from .anthropic.routes import ANTHROPIC
from .calls.routes import CALLS
from .chat.dialect import CHAT
from .dialect import Dialect
from .error_bodies import OPENAI_ERRORS, ErrorShape
from .realtime.routes import REALTIME
from .responses.websocket import RESPONSES
from .server_routes import SERVER
from .transcription.routes import TRANSCRIPTION

DIALECTS: Final[tuple[Dialect, ...]] = (
    SERVER,
    TRANSCRIPTION,
    CHAT,
    RESPONSES,
    ANTHROPIC,
    REALTIME,
    CALLS,
)
_MODELS: Final = "/v1/models"
"""OpenAI's clients and Anthropic's have this route in common."""
_ANTHROPIC_VERSION: Final = b"anthropic-version"
"""The header of every request of Anthropic's clients."""


def errors_for(scope: Scope) -> ErrorShape:
    """How errors of a request are written: as the dialect does that has its route, or one above it."""
    path: str = scope["path"]
    if path.startswith(_MODELS) and any(name == _ANTHROPIC_VERSION for name, _ in scope["headers"]):
        return ANTHROPIC.errors
    for dialect in DIALECTS:
        for own in dialect.operations.paths:
            if path == own or path.startswith(f"{own}/"):
                return dialect.errors
    return OPENAI_ERRORS
