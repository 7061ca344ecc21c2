"""The exception tree: whose fault it is, and what the client is told.

    SensoriumError
    ├── ClientError            the client's fault (4xx, or an `error` event that keeps the session)
    │   ├── BadRequestError    400  a field is missing, malformed or out of range; `param` names it
    │   ├── UnauthorizedError  401  no key, or a wrong one
    │   ├── ForbiddenError     403  a web page that may not use this server
    │   ├── NotFoundError      404  no such model or route
    │   ├── MethodNotAllowedError 405 the route exists, but not for this method
    │   ├── RequestTimeoutError 408 the request stopped arriving, or arrives too slowly
    │   ├── TooLargeError      413  more bytes, samples or seconds than the stated limit
    │   ├── UpgradeRequiredError 426 the address speaks WebSocket, and the request does not
    │   ├── MediaError         400  the bytes are not media we can open
    │   └── FetchError         422  the file at an address could not be had, or may not be; `param` names it
    ├── OverloadedError        503  a stated bound was reached; try again after `retry_after_s`
    ├── UnavailableError       503  a shared actor is down and being restarted
    ├── ModelLoadError         —    a model folder is missing, incomplete or of an unknown kind (at start)
    └── InternalError          500  our fault; the message carries no decoder text, paths or addresses

Messages are shown to clients as they are. Read next: `protocols/transcription/rest.py` (the error body).
"""

from __future__ import annotations

from typing import ClassVar


class SensoriumError(Exception):
    """Root of every error that may be shown to a client."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str] = "internal_error"
    retry_after_s: float | None = None
    """When to try again, which becomes the `Retry-After` header; None: there is nothing to wait for."""

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.param = param


class ClientError(SensoriumError):
    """The client sent something that cannot be served."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_request"


class BadRequestError(ClientError):
    """A field is missing, malformed or out of range; `param` is its dotted name."""

    default_code = "invalid_value"


def wrong(param: str, problem: str, *, code: str | None = None) -> BadRequestError:
    """The error that says of a field, by its dotted name, what is wrong with it."""
    return BadRequestError(f"`{param}` {problem}", code=code, param=param)


class UnauthorizedError(ClientError):
    """No API key, or one that is not accepted."""

    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"


class ForbiddenError(ClientError):
    """A web page's request that this server does not take (`actors/http/origins.py`)."""

    status = 403
    type = "permission_error"
    default_code = "forbidden"


class NotFoundError(ClientError):
    """No such model, or a route that no served model supports."""

    status = 404
    default_code = "not_found"


class MethodNotAllowedError(ClientError):
    """The route exists, but not for this method; `allowed` names those that it has."""

    status = 405
    default_code = "method_not_allowed"

    def __init__(self, message: str, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allowed = allowed


class RequestTimeoutError(ClientError):
    """The request stopped arriving, or arrives too slowly."""

    status = 408
    default_code = "request_timeout"


class UpgradeRequiredError(ClientError):
    """The address speaks WebSocket, and the request does not."""

    status = 426
    default_code = "upgrade_required"


class TooLargeError(ClientError):
    """The input exceeds a stated limit; the message says which, and the limit."""

    status = 413
    default_code = "too_large"


class MediaError(ClientError):
    """The bytes could not be opened as the media they claim to be."""

    default_code = "invalid_media"


class FetchError(ClientError):
    """The file at an address could not be had, or may not be: `code` says why, the message in words.

    url_refused: this server does not go there. fetch_refused: the other server did not give it.
    fetch_failed: it could not be reached, or broke off. fetch_timeout: it was too slow.
    file_too_large: it has too many bytes. After fetch_failed and fetch_timeout, trying again later may help.
    """

    status = 422
    default_code = "fetch_failed"


class OverloadedError(SensoriumError):
    """A stated bound was reached."""

    status = 503
    type = "overloaded_error"
    default_code = "overloaded"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float = 1.0,
    ) -> None:
        super().__init__(message, code=code, param=param)
        self.retry_after_s: float = retry_after_s


class UnavailableError(SensoriumError):
    """A shared actor died while serving the request; it is being restarted."""

    status = 503
    type = "server_error"
    default_code = "unavailable"
    retry_after_s: float | None = 1.0


class EngineFailedError(UnavailableError):
    """A model has failed for good: only the server's own restart helps."""

    default_code = "engine_unavailable"
    retry_after_s = None


class DeviceLostError(UnavailableError):
    """The device does nothing more for this process; a new one can use it again."""


class ModelLoadError(SensoriumError):
    """A model could not be loaded; the message names the folder, file, tensor or field at fault."""

    default_code = "model_load_failed"


class InternalError(SensoriumError):
    """A defect of ours."""


def close_code(error: SensoriumError) -> int:
    """With which a WebSocket is closed that is refused."""
    match error:
        case UnavailableError():
            return 1012
        case OverloadedError():
            return 1013
        case _:
            return 1008
