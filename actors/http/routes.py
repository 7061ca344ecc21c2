"""All routes of the server, and `Gate`, which stands in front of them.

`Gate` does what is the same for every route: it checks the origin of web pages (`actors/http/origins.py`) and
the API key, counts the request, and turns every error into the error body of the route's dialect. A client
that leaves cancels what was being done for it. The routes themselves are in each dialect's folder
(`actors/http/dialects.py` lists them).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import trio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...protocols.errors import BadRequestError, NotFoundError, SensoriumError, UnavailableError
from ...protocols.shared.event_stream import DONE
from ...protocols.shared.route_hints import hint
from ..fronts.listener import RELAYED
from ..runtime.panic_guard import contained
from ..transport.http_exchange import BODY_FAULT
from .console.routes import is_console, leads_to_console, to_console
from .dialect import route
from .dialects import DIALECTS, errors_for
from .error_bodies import ERROR_SHAPE, ErrorShape, error_response, shown
from .openapi_routes import Described
from .origins import Fields, Origins, is_preflight
from .service import Service

logger = logging.getLogger(__name__)

LIVE_PATHS: Final = frozenset({"/live", "/ping"})
"""Answered with 200 for as long as the process is worth keeping."""
OPEN_PATHS: Final = LIVE_PATHS | {"/health"}
"""Answered without a key."""


class Gate:
    """Everything around a route that is the same for all of them: who may, CORS, errors, the count.

    WebSockets pass after the rules on pages: their route asks for the key itself.
    """

    def __init__(self, app: ASGIApp, service: Service, found: Sequence[Route]) -> None:
        self._app = app
        self._service = service
        self._paths = frozenset(each.path for each in found)
        self._with_parameters = [each for each in found if each.param_convertors]
        self._origins = Origins(service.config.listen)
        self._has_console = service.config.console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._open(scope, receive, send)
            return
        errors = scope[ERROR_SHAPE] = errors_for(scope)
        request = Request(scope, receive)
        cors = self._origins.fields(request.headers)
        path: str = scope["path"]
        answer, began = _Answer(send, cors, errors), trio.current_time()
        try:
            if path not in OPEN_PATHS and RELAYED not in scope:
                self._origins.check(request.headers)
            if is_preflight(request.method, request.headers):
                cors += self._origins.preflight(request.headers)
                await Response(status_code=204)(scope, receive, answer.send)
                return
            if self._has_console and leads_to_console(request):
                await to_console()(scope, receive, answer.send)
                return
            if not self._is_open(path):
                self._service.caller(request)
            with contained, self._service.answering() as in_time:
                answer.on_plain = partial(self._service.let_finish, in_time)
                await self._app(scope, receive, answer.send)
            if in_time.cancelled_caught:
                await answer.break_off(UnavailableError("The server is shutting down.", code="draining"))
        except ClientDisconnect:
            fault: BadRequestError | None = scope.get(BODY_FAULT, lambda: None)()
            if fault is None or answer.status:
                answer.status = answer.status or 499
            else:
                await error_response(fault, errors)(scope, receive, answer.send)
        except Exception as error:
            if answer.status:  # it had begun: all that is left is to break it off
                logger.exception("an answer failed midway")
                raise
            refusal = error_response(shown(error, f"{request.method} {request.url.path}"), errors)
            await refusal(scope, receive, answer.send)
        finally:
            label = self._label(path)
            metrics = self._service.metrics
            metrics.requests.labels(label, str(answer.status or 499)).inc()
            metrics.request_duration.labels(label).observe(trio.current_time() - began)

    def _is_open(self, path: str) -> bool:
        """Whether it is answered without a key."""
        return path in OPEN_PATHS or (self._has_console and is_console(path))

    def _label(self, path: str) -> str:
        """The route of a path, as metrics name it: few, whatever clients send."""
        if path in self._paths:
            return path
        found = next((each for each in self._with_parameters if each.path_regex.match(path)), None)
        return "other" if found is None else found.path.replace(":path", "")

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket. What is wrong with it before its handshake is answered as over HTTP."""
        try:
            if RELAYED not in scope:  # where it came in, that was checked
                self._origins.check(Headers(scope=scope))
            with contained:
                await self._app(scope, receive, send)
        except SensoriumError as error:
            await error_response(error, errors_for(scope))(scope, receive, send)


class _Answer:
    """An answer on its way: what has been said of it."""

    def __init__(self, send: Send, fields: Fields, errors: ErrorShape) -> None:
        self._send = send
        self._fields = fields
        """Header fields of every answer."""
        self._errors = errors
        self.on_plain: Callable[[], None] = lambda: None
        """Called where the answer that begins is not a stream of events."""
        self.status = 0
        """0 while it has not begun."""

    async def send(self, message: Message) -> None:
        """ASGI's `send`."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            kinds = [value for name, value in message.get("headers", ()) if name == b"content-type"]
            if not any(kind.startswith(b"text/event-stream") for kind in kinds):
                self.on_plain()
            message = {**message, "headers": [*message.get("headers", ()), *self._fields]}
        await self._send(message)

    async def break_off(self, error: SensoriumError) -> None:
        """End it, a stream of events, with an error. Raises that where nothing has been sent yet."""
        if not self.status:
            raise error
        body = self._errors.event(error) + DONE
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def routes(service: Service) -> list[Route]:
    """Every REST route the served models can answer."""
    found = [each for dialect in DIALECTS for each in dialect.routes(service)]
    paths = [each.path.replace(":path", "") for each in found]
    described = Described(paths, needs_key=service.keys.are_needed)
    return [*found, route("/openapi.json", described.openapi, "GET"), route("/docs", described.docs, "GET")]


def sockets(service: Service) -> list[WebSocketRoute]:
    """Every WebSocket route."""
    return [each for dialect in DIALECTS for each in dialect.sockets(service)]


def not_found(paths: Collection[str]) -> ASGIApp:
    """Where no route matches. `paths`: of those there are. The commonest mistake is a client's base address
    with `/v1` left out or said twice, a slash at the end, or another server's route."""

    async def answer(scope: Scope, _: Receive, __: Send) -> None:
        path: str = scope["path"][:80]
        if scope["type"] == "websocket":
            where = "live sessions are at /v1/realtime, responses of models that chat at /v1/responses"
            raise NotFoundError(f"No WebSocket at {path}; {where}.")
        raise NotFoundError(
            f"No route {scope['method']} {path} for the models served here. {hint(path, paths)}"
        )

    return answer
