"""The dialects that this server has. A new one is a line here."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from .anthropic.dialect import ANTHROPIC
from .calls.dialect import CALLS
from .chat.dialect import CHAT
from .console.dialect import CONSOLE
from .dialect import Dialect
from .embeddings.dialect import EMBEDDINGS
from .error_bodies import OPENAI_ERRORS, ErrorShape
from .realtime.dialect import REALTIME
from .responses.dialect import RESPONSES
from .server.dialect import SERVER
from .transcription.dialect import TRANSCRIPTION

DIALECTS: Final[tuple[Dialect, ...]] = (
    SERVER,
    TRANSCRIPTION,
    CHAT,
    EMBEDDINGS,
    RESPONSES,
    ANTHROPIC,
    REALTIME,
    CALLS,
    CONSOLE,
)
_ERRORS: Final = {path: dialect.errors for dialect in DIALECTS for path in dialect.operations.paths}
_MODELS: Final = "/v1/models"
"""OpenAI's clients and Anthropic's have this route in common."""
_ANTHROPIC_VERSION: Final = b"anthropic-version"
"""The header of every request of Anthropic's clients."""
_MOST_PARTS: Final = 4
"""Of the path of a route."""


def errors_for(scope: Scope) -> ErrorShape:
    """How errors of a request are written: as the dialect does that has its route, or one above it."""
    path: str = scope["path"]
    if path.startswith(_MODELS) and any(name == _ANTHROPIC_VERSION for name, _ in scope["headers"]):
        return ANTHROPIC.errors
    parts = path.split("/", _MOST_PARTS + 1)[: _MOST_PARTS + 1]
    above = ("/".join(parts[:number]) for number in range(len(parts), 1, -1))
    return next((_ERRORS[each] for each in above if each in _ERRORS), OPENAI_ERRORS)
