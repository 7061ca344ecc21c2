"""The REST routes: models, health, metrics, and the list of all. Shapes are
`protocols/transcription/rest.py`.

`Gate` stands in front of every route: it looks which web page asks, if one does (`actors/http/origins.py`),
asks for the key, counts the request, and turns every error into the one error body. A client that leaves
cancels what was being done for it. Live sessions: `actors/http/realtime/websocket.py`.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from functools import partial
from typing import Final
from uuid import uuid4

import trio
from msgspec import UNSET
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...protocols.errors import (
    BadRequestError,
    MethodNotAllowedError,
    NotFoundError,
    SensoriumError,
    UnavailableError,
    UpgradeRequiredError,
)
from ...protocols.openapi.shapes import ITEMS_QUERY, RESPONSE_QUERY
from ...protocols.query_string import check_body_address
from ...protocols.realtime.client_secrets import ClientSecret, parse_client_secret
from ...protocols.shared.route_hints import hint
from ...protocols.transcription import rest
from ...realtime.session import Session
from ..runtime.panic_guard import contained
from ..transport.http_exchange import BODY_FAULT
from ..transport.websocket import PROXY_HINT
from .anthropic.routes import MessageRoutes
from .chat.completions import CompletionRoutes
from .chat.routes import ChatRoutes
from .chat.text_requests import JSON, json_response
from .error_bodies import error_frame, error_response, shown
from .openapi_routes import Described
from .origins import Fields, Origins, is_preflight
from .responses.routes import ResponseRoutes
from .service import ServedModel, Service
from .transcription.routes import TranscriptionRoutes
from .uploads import read_json_body

logger = logging.getLogger(__name__)

LIVE_PATHS: Final = frozenset({"/live", "/ping"})
"""Answered with 200 for as long as the process is worth keeping."""
OPEN_PATHS: Final = LIVE_PATHS | {"/health"}
"""Answered without a key."""
_SECRET_BODY_BYTES: Final = 256 * 1024
"""More than any session's settings."""

Endpoint = Callable[[Request], Awaitable[Response]]


class Gate:
    """Everything around a route that is the same for all of them: who may, CORS, errors, the count.

    WebSockets pass after the rules on pages: their route asks for the key itself.
    """

    def __init__(self, app: ASGIApp, service: Service, paths: frozenset[str]) -> None:
        self._app = app
        self._service = service
        self._paths = paths
        self._origins = Origins(service.config.listen)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._open(scope, receive, send)
            return
        request = Request(scope, receive)
        cors = self._origins.fields(request.headers)
        path: str = scope["path"]
        answer, began = _Answer(send, cors, path), trio.current_time()
        try:
            if path not in OPEN_PATHS:
                self._origins.check(request.headers)
            if is_preflight(request.method, request.headers):
                cors += self._origins.preflight(request.headers)
                await Response(status_code=204)(scope, receive, answer.send)
                return
            if path not in OPEN_PATHS:
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
                await error_response(fault, scope)(scope, receive, answer.send)
        except Exception as error:
            if answer.status:  # it had begun: all that is left is to break it off
                logger.exception("an answer failed midway")
                raise
            refusal = error_response(shown(error, f"{request.method} {request.url.path}"), scope)
            await refusal(scope, receive, answer.send)
        finally:
            if path not in self._paths:
                kinds = (kind for kind in ("models", "responses") if path.startswith(f"/v1/{kind}/"))
                path = next((f"/v1/{kind}/{{id}}" for kind in kinds), "other")
            metrics = self._service.metrics
            metrics.requests.labels(path, str(answer.status or 499)).inc()
            metrics.request_duration.labels(path).observe(trio.current_time() - began)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket. What is wrong with it before its handshake is answered as over HTTP."""
        try:
            self._origins.check(Headers(scope=scope))
            with contained:
                await self._app(scope, receive, send)
        except SensoriumError as error:
            await error_response(error, scope)(scope, receive, send)


class _Answer:
    """An answer on its way: what has been said of it."""

    def __init__(self, send: Send, fields: Fields, path: str) -> None:
        self._send = send
        self._fields = fields
        """Header fields of every answer."""
        self._path = path
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
        body = error_frame(error, self._path) + rest.DONE
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def routes(service: Service) -> list[Route]:
    """Every REST route the served models can answer."""
    api, files = Api(service), TranscriptionRoutes(service)
    found = [
        _route("/health", api.health, "GET"),
        _route("/live", api.live, "GET"),
        _route("/ping", api.live, "GET", "POST"),
        _route("/version", api.version, "GET"),
        _route("/load", api.load, "GET"),
        _route("/metrics", api.metrics, "GET"),
        _route("/v1/realtime", api.realtime, "GET"),
        _route("/v1/models", api.list_models, "GET"),
        _route("/v1/models/{id:path}", api.get_model, "GET"),
    ]
    if service.transcribing:
        found.append(_route("/v1/audio/transcriptions", files.transcriptions, "POST"))
    if service.transcribing or any(model.can_chat for model in service.models.values()):
        found.append(_route("/v1/realtime/client_secrets", api.client_secrets, "POST", options=()))
    if any(model.can_translate for model in service.models.values()):
        found.append(_route("/v1/audio/translations", files.translations, "POST"))
    if texts := [model.text for model in service.models.values() if model.text is not None]:
        completions = CompletionRoutes(service)
        found += [
            _route("/v1/completions", completions.completions, "POST", options=()),
            _route("/tokenize", completions.tokenize, "POST", options=()),
            _route("/detokenize", completions.detokenize, "POST", options=()),
            _route("/tokenizer_info", completions.tokenizer_info, "GET", options=("model",)),
        ]
        if any(text.prompter.builder.has_template for text in texts):
            messages, responses = MessageRoutes(service), ResponseRoutes(service)
            found += [
                _route("/v1/chat/completions", ChatRoutes(service).chat_completions, "POST", options=()),
                _route("/v1/messages", messages.create, "POST", options=()),
                _route("/v1/messages/count_tokens", messages.count_tokens, "POST", options=()),
                _route("/v1/responses", responses.create, "POST", options=()),
                _route("/v1/responses/input_tokens", responses.input_tokens, "POST", options=()),
                _route("/v1/responses/{id}", responses.one, "GET", "DELETE", options=RESPONSE_QUERY),
                _route("/v1/responses/{id}/cancel", responses.cancel, "POST", options=()),
                _route("/v1/responses/{id}/input_items", responses.input_items, "GET", options=ITEMS_QUERY),
            ]
    paths = [route.path.replace(":path", "") for route in found]
    described = Described(paths, needs_key=service.keys.are_needed)
    return [
        *found,
        _route("/openapi.json", described.openapi, "GET"),
        _route("/docs", described.docs, "GET"),
    ]


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


def _route(path: str, endpoint: Endpoint, *methods: str, options: Collection[str] | None = None) -> Route:
    """`options`: what may stand in the address; None: the endpoint reads it."""

    async def checked(request: Request) -> Response:
        if request.method not in methods and not (request.method == "HEAD" and "GET" in methods):
            told = f"{path} takes {' or '.join(methods)}, not {request.method[:16]}."
            raise MethodNotAllowedError(told, (*methods, "HEAD") if "GET" in methods else methods)
        if options is not None:
            check_body_address(request.query_params, path, options)
        return await endpoint(request)

    # Without a method list starlette passes every method on: its own 405 is not in our error shape.
    route = Route(path, checked)
    route.methods = set()
    return route


class Api:
    """The endpoints. Methods take a request and give a response or raise a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._version = importlib.metadata.version("sensorium")

    async def health(self, _: Request) -> Response:
        """200 only when every model can take work now."""
        if self._service.is_ready:
            return json_response({"status": "ok"})
        status = "draining" if self._service.is_draining else "unavailable"
        models = {name: model.engine.health for name, model in self._service.models.items()}
        status = "failed" if "failed" in models.values() else status
        return json_response({"status": status, "models": models}, 503)

    async def live(self, _: Request) -> Response:
        """200 as long as the process answers: while it loads, drains, or starts a model again, too. Not where
        nothing but another process can serve anything again."""
        if all(model.engine.health == "failed" for model in self._service.models.values()):
            return json_response({"status": "failed"}, 503)
        return json_response({"status": "ok"})

    async def version(self, _: Request) -> Response:
        """The package's version."""
        return json_response({"version": self._version})

    async def load(self, _: Request) -> Response:
        """Requests and live sessions in hand."""
        return json_response({"server_load": self._service.num_requests + len(self._service.sessions)})

    async def metrics(self, _: Request) -> Response:
        """Prometheus' text format."""
        await self._service.refresh()
        text = bytearray()
        for part in self._service.metrics.parts():
            text += part
            await trio.lowlevel.checkpoint()
        return Response(bytes(text), media_type=CONTENT_TYPE_LATEST)

    async def realtime(self, _: Request) -> Response:
        """Live sessions, asked for without a WebSocket."""
        raise UpgradeRequiredError(
            f"Live sessions speak WebSocket, and the request has no `Upgrade: websocket`. {PROXY_HINT}"
        )

    async def list_models(self, _: Request) -> Response:
        """Every served model, by each of its names."""
        names = (*self._service.models, *self._service.aliases)
        cards = (_card(self._service.model(name), name) for name in names)
        return Response(rest.models_body(cards), media_type=JSON)

    async def get_model(self, request: Request) -> Response:
        """One served model."""
        name = request.path_params["id"]
        return json_response(_card(self._service.model(name), name))

    async def client_secrets(self, request: Request) -> Response:
        """A short-lived key for live sessions that begin as the body says."""
        wish = parse_client_secret(await read_json_body(request, max_bytes=_SECRET_BODY_BYTES))
        patch = wish.patch
        config = self._service.session_config(*self._service.begun_with(patch))
        session = Session(config, lambda prefix: f"{prefix}_{uuid4().hex[:24]}").view()
        value, expires_at = self._service.secrets.issue(
            patch, wish.seconds, owner=self._service.caller(request), is_single_use=wish.is_single_use
        )
        return json_response(ClientSecret(value, expires_at, session))


def _card(model: ServedModel, name: str) -> rest.ModelCard:
    """Of a model by one of its names."""
    speech = model.transcription
    languages = UNSET if speech is None else speech.languages
    info = None if model.text is None else model.text.prompter.builder.info
    return rest.ModelCard(
        id=name,
        created=model.created,
        abilities=model.abilities,
        input_modalities=model.input_modalities,
        languages=languages,
        vocab_size=UNSET if info is None else info.vocab_size,
        root=model.name,
        max_model_len=model.engine.info.max_context,
        display_name=name,
        created_at=datetime.fromtimestamp(model.created, UTC),
    )
