"""The ASGI application of a gateway: what it answers itself, and what it relays.

`/health`, `/live`, `/ping`, `/metrics` and `/v1/models` are its own. Only what models answer is relayed, by
path: nothing else of a server is shown to clients. Where servers are is no part of any request.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from ...protocols.anthropic.response import message_error
from ...protocols.errors import (
    BadRequestError,
    MethodNotAllowedError,
    NotFoundError,
    SensoriumError,
    UnavailableError,
)
from ...protocols.shared.generation import named_sse
from ..http.error_bodies import ERROR_SHAPE, OPENAI_ERRORS, ErrorShape, error_response, error_shape, shown
from ..http.origins import Fields, Origins, is_preflight
from ..runtime.panic_guard import contained
from .http_relay import HttpRelay
from .live_relay import LiveRelay
from .state import GatewayState

logger = logging.getLogger(__name__)

_LIVE_PATHS: Final = frozenset({"/live", "/ping"})
_OPEN_PATHS: Final = _LIVE_PATHS | {"/health"}
_RELAYED: Final = re.compile(r"/(v1/.+|tokenize|detokenize|tokenizer_info)")
_MODELS: Final = "/v1/models"
_JSON: Final = "application/json"
_ANTHROPIC_ERRORS: Final = ErrorShape(
    lambda error: msgspec.json.encode(message_error(error)), lambda error: named_sse(message_error(error))
)


class GatewayApp:
    """Of one gateway."""

    def __init__(self, state: GatewayState, origins: Origins) -> None:
        self._state = state
        self._origins = origins
        self._http = HttpRelay(state)
        self._live = LiveRelay(state)

    def drain(self) -> None:
        """Take nothing new from now on."""
        self._state.is_draining = True
        self._live.drain()

    async def probed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """At the port for nothing but probes."""
        if scope["type"] == "http" and scope["path"] in _OPEN_PATHS:
            await self._health(scope["path"])(scope, receive, send)
            return
        refusal = error_response(NotFoundError("Only /live, /health and /ping are answered at this port."))
        if scope["type"] == "http":
            await refusal(scope, receive, send)
        else:
            await WebSocket(scope, receive, send).send_denial_response(refusal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket."""
        is_message = scope["path"].startswith("/v1/messages")
        scope[ERROR_SHAPE] = _ANTHROPIC_ERRORS if is_message else OPENAI_ERRORS
        if scope["type"] == "websocket":
            await self._open(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer = _Answer(send, self._origins.fields(headers))
        try:
            with contained:
                await self._answer(scope, headers, receive, answer)
        except ClientDisconnect:
            return
        except Exception as error:
            if answer.has_begun:
                raise
            refusal = shown(error, f"{scope['method']} {scope['path'][:200]}")
            if refusal.status >= 500 or refusal.status == 401:
                self._state.metrics.requests.labels("", str(refusal.status)).inc()
            await error_response(refusal, error_shape(scope))(scope, receive, answer.send)

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, answer: _Answer) -> None:
        path, method = scope["path"], scope["method"]
        if path in _OPEN_PATHS:
            await self._health(path)(scope, receive, answer.send)
            return
        self._origins.check(headers)
        if is_preflight(method, headers):
            answer.fields += self._origins.preflight(headers)
            await Response(status_code=204)(scope, receive, answer.send)
            return
        client = self._state.identity.client(HTTPConnection(scope))
        if path == "/metrics":
            found = Response(self._state.metrics.text(), media_type=CONTENT_TYPE_LATEST)
        elif path == _MODELS or path.startswith(f"{_MODELS}/"):
            found = self._models(method, path.removeprefix(_MODELS).removeprefix("/"))
        else:
            _check_path(scope)
            self._check_open()
            await self._http.serve(scope, receive, answer.send, client)
            return
        await found(scope, receive, answer.send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket. What is wrong with it before its handshake is answered as over HTTP."""
        try:
            self._origins.check(Headers(scope=scope))
            client = self._state.identity.client(HTTPConnection(scope))
            _check_path(scope)
            self._check_open()
            with contained:
                await self._live.serve(scope, receive, send, client)
        except SensoriumError as error:
            response = error_response(error, error_shape(scope))
            await WebSocket(scope, receive, send).send_denial_response(response)

    def _check_open(self) -> None:
        if self._state.is_draining:
            raise UnavailableError("The gateway is shutting down.", code="draining")

    def _health(self, path: str) -> Response:
        """200 while a server takes work; `/live` as long as the process answers."""
        if path in _LIVE_PATHS or (self._state.servers.are_ready and not self._state.is_draining):
            return Response(b'{"status":"ok"}', media_type=_JSON)
        status = b"draining" if self._state.is_draining else b"unavailable"
        return Response(b'{"status":"%s"}' % status, 503, media_type=_JSON)

    def _models(self, method: str, name: str) -> Response:
        """The models of all servers that take work, each once, or one of them."""
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowedError(
                f"{method} is not allowed at {_MODELS}; allowed: GET", ("GET", "HEAD")
            )
        found: dict[str, dict[str, Any]] = {}
        for server in self._state.servers:
            if server.takes_work:
                found = (server.models or {}) | found
        if not name:
            body: object = {"object": "list", "data": list(found.values())}
        elif name in found:
            body = found[name]
        else:
            raise NotFoundError(
                f"The model `{name[:80]}` does not exist; served here: {', '.join(sorted(found)) or 'none'}.",
                code="model_not_found",
                param="model",
            )
        return Response(msgspec.json.encode(body), media_type=_JSON)


def _check_path(scope: Scope) -> None:
    """Raise NotFoundError for what is not relayed, BadRequestError for a path that a server may read as
    another."""
    path: str = scope["path"]
    segments = re.split(r"[/\\]", unquote(path))
    if any(each in (".", "..") for each in segments) or "//" in path or not path.isprintable():
        raise BadRequestError("The path has empty parts, `.` or `..`; send it as the server has it.")
    if _RELAYED.fullmatch(path) is None:
        raise NotFoundError(f"No route {path[:80]} at this gateway; what models answer is under /v1/.")


class _Answer:
    """An answer on its way: whether it has begun."""

    def __init__(self, send: Send, fields: Fields) -> None:
        self._send = send
        self.fields = fields
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """ASGI's `send`."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            message = {**message, "headers": [*message.get("headers", ()), *self.fields]}
        await self._send(message)
