"""Every request gets an id, and a line in the log when it is answered. Plain ASGI, around everything else.

The id is the client's own `X-Request-Id` where that is fit to be written into a log, and is sent back by the
same header (and by `Request-Id`, for Anthropic's clients), also with errors and in the handshake of a
WebSocket. Read `actors/telemetry/logs.py` for how it reaches other lines. What is refused before it is a
request (`actors/transport/refusals.py`) gets lines of its own.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import Final

import trio
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..telemetry.logs import FIELDS, LogConfig, LogContext, id_headers, request_id_of, trace_id_of
from ..transport.refusals import Refusal
from .api_keys import sent_key

logger = logging.getLogger("sensorium.access")

_HEADER: Final = "x-request-id"
_MAX_PATH: Final = 200
_CLIENT_LEFT: Final = 499
"""As nginx says it: nobody waited for the answer."""


def caller_shown(connection: HTTPConnection) -> str:
    """Who asks, as a log may say it: the address, and of the key no more than tells it from others.

    `printf %s KEY | sha256sum` begins with the same eight digits.
    """
    address = connection.client.host if connection.client else "-"
    key = sent_key(connection)
    return f"{address} key:{hashlib.sha256(key.encode()).hexdigest()[:8]}" if key else address


class AccessLog:
    """Around an ASGI application: request ids, and the access log where it is wanted."""

    def __init__(self, app: ASGIApp, config: LogConfig) -> None:
        self._app = app
        self._is_on = config.access_log == "on"
        self._skipped = frozenset(config.access_log_skip)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket."""
        connection = HTTPConnection(scope)
        request_id = request_id_of(connection.headers.get(_HEADER))
        context = LogContext(request_id, trace_id_of(connection.headers.get("traceparent")))
        is_written = self._is_on and scope["path"] not in self._skipped
        exchange = _Exchange(connection, request_id, send, is_written)
        with context.applied():
            try:
                await self._app(scope, receive, exchange.send)
            finally:
                exchange.ended()


class RefusalLog:
    """Lines for what was refused before it was a request of the application's; tells for `Refusals`."""

    def __init__(self, config: LogConfig) -> None:
        self._is_on = config.access_log == "on"
        self._skipped = frozenset(config.access_log_skip)

    def __call__(self, refusal: Refusal, num_unreported: int) -> None:
        """Write the line, and how many there might have been before it."""
        if not self._is_on or (refusal.path in self._skipped and not num_unreported):
            return
        method, path = refusal.method[:16] or "-", refusal.path[:_MAX_PATH] or "-"
        fields: dict[str, object] = {
            "method": method,
            "path": path,
            "status": refusal.status,
            "caller": refusal.client[0],
            "refused": refusal.code,
            "unreported": num_unreported,
        }
        before = f" ({num_unreported} more before it)" if num_unreported else ""
        with LogContext(refusal.request_id).applied():
            logger.info(
                "%s %s %d refused %s %s%s",
                *(method, path, refusal.status, refusal.code, refusal.client[0], before),
                extra={FIELDS: fields},
            )


@dataclass(slots=True)
class _Exchange:
    """One request and its answer so far."""

    connection: HTTPConnection
    request_id: str
    to_client: Send
    is_written: bool
    status: int = 0
    close_code: int | None = None
    num_bytes: int = 0
    began: float = 0.0
    is_complete: bool = False

    def __post_init__(self) -> None:
        self.began = trio.current_time()

    async def send(self, message: Message) -> None:
        """Pass a message of the application's on to the client."""
        match message["type"]:
            case "http.response.start" | "websocket.http.response.start":
                self.status = message["status"]
                message = self._with_id(message)
            case "websocket.accept":
                self.status = 101
                message = self._with_id(message)
                self._write()
            case "http.response.body" | "websocket.http.response.body":
                self.num_bytes += len(message.get("body", b""))
                self.is_complete = not message.get("more_body", False)
            case "websocket.send":
                self.num_bytes += len(message.get("text") or message.get("bytes") or b"")
            case "websocket.close":
                self.close_code = message.get("code", 1000)
                self.status = self.status or 403
                self.is_complete = True
        await self.to_client(message)

    def ended(self) -> None:
        """Nothing more is done for it."""
        self.status = self.status or _CLIENT_LEFT
        self._write(is_end=True)

    def _with_id(self, message: Message) -> Message:
        return {**message, "headers": [*message.get("headers", ()), *id_headers(self.request_id)]}

    def _write(self, *, is_end: bool = False) -> None:
        if not self.is_written or not logger.isEnabledFor(logging.INFO):
            return
        scope = self.connection.scope
        is_socket = scope["type"] == "websocket"
        method = "WEBSOCKET" if is_socket else scope["method"][:16]
        path = scope["path"][:_MAX_PATH]
        ms = 1000 * (trio.current_time() - self.began)
        caller = caller_shown(self.connection)
        fields: dict[str, object] = {"method": method, "path": path, "status": self.status, "caller": caller}
        if not is_end:
            logger.info("%s %s %d opened %s", method, path, self.status, caller, extra={FIELDS: fields})
            return
        fields |= {"bytes": self.num_bytes, "ms": round(ms, 1), "complete": self.is_complete}
        how = "" if self.is_complete else " cut"
        if is_socket and self.status == 101:
            fields["close_code"] = self.close_code
            how = " left" if self.close_code is None else f" closed {self.close_code}"
        logger.info(
            "%s %s %d%s %d B %.1f ms %s",
            *(method, path, self.status, how, self.num_bytes, ms, caller),
            extra={FIELDS: fields},
        )
