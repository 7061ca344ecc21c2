"""What went wrong, in the shape of the API that was asked: the body of an answer, or an event of a stream.

`/v1/messages` has Anthropic's (`protocols/anthropic/response.py`), and so has `/v1/models` where its clients
ask; all else has OpenAI's (`protocols/transcription/rest.py`).
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import Scope

from ...protocols.anthropic.response import message_error
from ...protocols.errors import InternalError, MethodNotAllowedError, SensoriumError
from ...protocols.shared.generation import named_sse
from ...protocols.transcription import rest
from ..runtime.threads import is_short, short_of

logger = logging.getLogger(__name__)

_MESSAGES: Final = "/v1/messages"
_MODELS: Final = "/v1/models"
_VERSION: Final = b"anthropic-version"
"""The header of every request of Anthropic's clients."""
_JSON: Final = "application/json"


def shown(error: Exception, what: str) -> SensoriumError:
    """What a client is told of an error; one that is not meant for clients is logged, with `what` failed.

    What the machine has too little of is no defect, and may be there the next time. The error's frames are
    dropped: trio may leave it in a reference cycle, and they hold the request's media.
    """
    try:
        if isinstance(error, SensoriumError):
            return error
        if isinstance(error, MemoryError) or is_short(error):
            logger.error("%s failed: %s", what, error or "no memory is left")
            return short_of("memory or descriptor")
        logger.error("%s failed", what, exc_info=error)
        return InternalError("The server failed on this request.")
    finally:
        error.__traceback__ = None


def error_response(error: SensoriumError, scope: Scope) -> Response:
    """The error body for that request with its status, and `Retry-After` where trying again makes sense."""
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    elif error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(error, MethodNotAllowedError):
        headers["Allow"] = ", ".join(error.allowed)
    elif error.status == 426:
        headers |= {"Upgrade": "websocket", "Connection": "Upgrade"}
    body = msgspec.json.encode(message_error(error)) if _is_anthropics(scope) else rest.error_body(error)
    return Response(body, error.status, headers, _JSON)


def _is_anthropics(scope: Scope) -> bool:
    path: str = scope["path"]
    if path.startswith(_MODELS):
        return any(name == _VERSION for name, _ in scope["headers"])
    return path.startswith(_MESSAGES)


def error_frame(error: SensoriumError, path: str) -> bytes:
    """The last event of a stream at that path that fails."""
    return named_sse(message_error(error)) if path.startswith(_MESSAGES) else rest.error_event(error)
