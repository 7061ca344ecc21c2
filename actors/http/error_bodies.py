"""Errors as answers: what a client may learn of one, and its body in the shape of the dialect in use.

Each dialect names its shape (`actors/http/dialect.py`); OpenAI's is the default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from ...protocols.errors import InternalError, MethodNotAllowedError, SensoriumError
from ...protocols.shared.event_stream import error_body, error_event
from ..runtime.threads import is_short, short_of

logger = logging.getLogger(__name__)

ERROR_SHAPE: Final = "sensorium.error_shape"
"""In a scope: how errors of the request's dialect are written."""


def shown(error: Exception, what: str) -> SensoriumError:
    """What a client is told of an error; one that is not meant for clients is logged, with `what` failed.

    What the machine has too little of is no defect, and may be there the next time. The frames of the error,
    and of those that led to it, are dropped: trio may leave it in a reference cycle, and they hold the
    request's media.
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
        _drop_frames(error)


def _drop_frames(error: BaseException) -> None:
    """Of an error, its causes, contexts and members."""
    found: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in found:
            continue
        found[id(each)] = each
        each.__traceback__ = None
        left += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How a dialect writes an error."""

    body: Callable[[SensoriumError], bytes]
    """The body of an answer."""
    event: Callable[[SensoriumError], bytes]
    """The last frame of a stream of events that fails."""


OPENAI_ERRORS: Final = ErrorShape(error_body, error_event)


def error_response(error: SensoriumError, shape: ErrorShape = OPENAI_ERRORS) -> Response:
    """The error with its status, and `Retry-After` where trying again makes sense."""
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    elif error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(error, MethodNotAllowedError):
        headers["Allow"] = ", ".join(error.allowed)
    elif error.status == 426:
        headers |= {"Upgrade": "websocket", "Connection": "Upgrade"}
    return Response(shape.body(error), error.status, headers, "application/json")


def error_shape(scope: Scope) -> ErrorShape:
    """The shape of errors that `Gate` (`actors/http/routes.py`) noted for this request."""
    shape: ErrorShape = scope.get(ERROR_SHAPE, OPENAI_ERRORS)
    return shape
