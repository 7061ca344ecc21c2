"""The REST routes: transcription, models, health, metrics. Shapes are `protocols/rest.py`, work is elsewhere.

`Gate` stands in front of every route: it asks for the key, counts the request, and turns every error into
the one error body. A client that leaves cancels what was being done for it. Live sessions:
`actors/http/websocket.py`.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final
from uuid import uuid4

import msgspec
import trio
from msgspec import UNSET
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...protocols import rest
from ...protocols.client_secrets import ClientSecret, parse_client_secret
from ...protocols.errors import (
    BadRequestError,
    ClientError,
    InternalError,
    NotFoundError,
    OverloadedError,
    SensoriumError,
    UnavailableError,
)
from ...protocols.transcript import Task, Transcript
from ...protocols.transcription_form import TranscriptionRequest, parse_transcription_form
from ...realtime.session import Session
from ..config import SAMPLE_BYTES_PER_S
from ..kernel.off_loop import off_loop
from ..speech.model import SpeechModel
from .chat import ChatRoutes
from .completions import CompletionRoutes
from .event_stream import SlicedResponse, transcript_stream, unless_gone
from .service import ServedModel, Service, bearer_key, caller_of
from .uploads import read_json_body, read_upload

logger = logging.getLogger(__name__)

LIVE_PATHS: Final = frozenset({"/live", "/ping"})
"""Answered with 200 for as long as the process is worth keeping."""
_OPEN_PATHS: Final = LIVE_PATHS | {"/health"}
_JSON: Final = "application/json"
_SECRET_BODY_BYTES: Final = 256 * 1024
"""More than any session's settings."""

Endpoint = Callable[[Request], Awaitable[Response]]


class MethodNotAllowedError(ClientError):
    """The route exists, but not for this method."""

    status = 405
    default_code = "method_not_allowed"


class Gate:
    """Everything around a route that is the same for all of them. Passes WebSockets through."""

    def __init__(self, app: ASGIApp, service: Service, paths: frozenset[str]) -> None:
        self._app = app
        self._service = service
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = 0, trio.current_time()

        async def counting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        request = Request(scope, receive)
        try:
            if scope["path"] not in _OPEN_PATHS:
                self._service.authenticate(bearer_key(request.headers.get("authorization")))
            await self._app(scope, receive, counting_send)
        except ClientDisconnect:
            status = status or 499
        except Exception as error:
            if status:  # the answer had begun: all that is left is to break it off
                logger.exception("an answer failed midway")
                raise
            await error_response(_shown(error, request))(scope, receive, counting_send)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            path = "/v1/models/{id}" if scope["path"].startswith("/v1/models/") else path
            metrics = self._service.metrics
            metrics.requests.labels(path, str(status or 499)).inc()
            metrics.request_duration.labels(path).observe(trio.current_time() - began)


def routes(service: Service) -> list[Route]:
    """Every REST route the served models can answer."""
    api = Api(service)
    found = [
        _route("/health", api.health, "GET"),
        _route("/live", api.live, "GET"),
        _route("/ping", api.live, "GET", "POST"),
        _route("/version", api.version, "GET"),
        _route("/load", api.load, "GET"),
        _route("/metrics", api.metrics, "GET"),
        _route("/v1/models", api.list_models, "GET"),
        _route("/v1/models/{id:path}", api.get_model, "GET"),
    ]
    if service.transcribing:
        found.append(_route("/v1/audio/transcriptions", api.transcriptions, "POST"))
        found.append(_route("/v1/realtime/client_secrets", api.client_secrets, "POST"))
    if any(model.can_translate for model in service.models.values()):
        found.append(_route("/v1/audio/translations", api.translations, "POST"))
    if texts := [model.text for model in service.models.values() if model.text is not None]:
        completions = CompletionRoutes(service)
        found += [
            _route("/v1/completions", completions.completions, "POST"),
            _route("/tokenize", completions.tokenize, "POST"),
            _route("/detokenize", completions.detokenize, "POST"),
        ]
        if any(text.prompter.builder.has_template for text in texts):
            found.append(_route("/v1/chat/completions", ChatRoutes(service).chat_completions, "POST"))
    return found


async def not_found(scope: Scope, _: Receive, send: Send) -> None:
    """Where no route matches."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000, "reason": ""})  # answered as 403
        return
    raise NotFoundError(f"No route {scope['method']} {scope['path'][:80]} for the models served here.")


def error_response(error: SensoriumError) -> Response:
    """The error body with its status, and `Retry-After` where trying again makes sense."""
    headers: dict[str, str] = {}
    if isinstance(error, OverloadedError):
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    elif isinstance(error, UnavailableError):
        headers["Retry-After"] = "1"
    elif error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(rest.error_body(error), error.status, headers, _JSON)


def _shown(error: Exception, request: Request) -> SensoriumError:
    if isinstance(error, SensoriumError):
        return error
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return InternalError("The server failed on this request.")


def _route(path: str, endpoint: Endpoint, *methods: str) -> Route:
    async def checked(request: Request) -> Response:
        if request.method not in methods and not (request.method == "HEAD" and "GET" in methods):
            raise MethodNotAllowedError(f"{path} takes {' or '.join(methods)}, not {request.method[:16]}.")
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
            return _json({"status": "ok"})
        status = "draining" if self._service.is_draining else "unavailable"
        models = {name: model.engine.health for name, model in self._service.models.items()}
        status = "failed" if "failed" in models.values() else status
        return _json({"status": status, "models": models}, status=503)

    async def live(self, _: Request) -> Response:
        """200 as long as the process answers: while it loads, drains, or starts a model again, too."""
        return _json({"status": "ok"})

    async def version(self, _: Request) -> Response:
        """The package's version."""
        return _json({"version": self._version})

    async def load(self, _: Request) -> Response:
        """Requests and live sessions in hand."""
        return _json({"server_load": self._service.num_requests + len(self._service.sessions)})

    async def metrics(self, _: Request) -> Response:
        """Prometheus' text format."""
        return Response(self._service.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    async def list_models(self, _: Request) -> Response:
        """Every served model."""
        return Response(rest.models_body(map(_card, self._service.models.values())), media_type=_JSON)

    async def get_model(self, request: Request) -> Response:
        """One served model."""
        return Response(
            msgspec.json.encode(_card(self._service.model(request.path_params["id"]))), media_type=_JSON
        )

    async def transcriptions(self, request: Request) -> Response:
        """A file's text in its own language."""
        return await self._transcribe(request, "transcribe")

    async def translations(self, request: Request) -> Response:
        """A file's text in English."""
        return await self._transcribe(request, "translate")

    async def client_secrets(self, request: Request) -> Response:
        """A short-lived key for live sessions that begin as the body says."""
        wish = parse_client_secret(await read_json_body(request, max_bytes=_SECRET_BODY_BYTES))
        config = self._service.session_config(None, wish.patch)
        session = Session(config, lambda prefix: f"{prefix}_{uuid4().hex[:24]}").view()
        value, expires_at = self._service.secrets.issue(wish.patch, wish.seconds)
        return Response(msgspec.json.encode(ClientSecret(value, expires_at, session)), media_type=_JSON)

    async def _transcribe(self, request: Request, task: Task) -> Response:
        caller = caller_of(request)
        admission = self._service.admission(caller)
        with admission():
            upload = await read_upload(request, max_bytes=self._service.config.files.max_upload_bytes)
            wish = parse_transcription_form(upload.fields, task=task)
            model = self._service.transcribing_model(wish.model)
            _check_task(model, wish, task)

            if wish.stream:
                stream = partial(self._transcript, model.transcriber, upload.data, wish, caller)
                return transcript_stream(stream, wish, admission)

            async def work() -> Response:
                transcript = await self._transcript(model.transcriber, upload.data, wish, caller)
                render = partial(rest.render_transcript, transcript, wish)
                content_type, body = await off_loop(render, size=len(transcript.text))
                return SlicedResponse(body, media_type=content_type)

            return await unless_gone(request, work)

    async def _transcript(
        self,
        transcriber: SpeechModel,
        data: bytes,
        wish: TranscriptionRequest,
        caller: str,
        on_delta: Callable[[str], None] | None = None,
    ) -> Transcript:
        """A file's transcript; memory for its samples is reserved before they are decoded."""
        media = self._service.media
        seconds = await media.measure_audio(data)
        async with self._service.budget.reserved(int(seconds * SAMPLE_BYTES_PER_S)) as reservation:
            audio = await media.decode(data)
            reservation.settle(audio.samples.nbytes)
            self._service.metrics.audio_seconds.labels("file").inc(audio.duration_s)
            lane = self._service.lane(caller, audio_s=audio.duration_s)
            return await transcriber.transcribe(audio.samples, wish.options, lane=lane, on_delta=on_delta)


def _check_task(model: ServedModel, wish: TranscriptionRequest, task: Task) -> None:
    if task not in model.transcriber.tasks:
        raise BadRequestError(
            f"The model `{model.name}` cannot {task}.", param="model", code="unsupported_task"
        )
    model.transcriber.check(wish.options)


def _card(model: ServedModel) -> rest.ModelCard:
    speech = model.transcription
    languages = UNSET if speech is None else speech.languages
    return rest.ModelCard(
        id=model.name,
        created=model.created,
        abilities=model.abilities,
        languages=languages,
        vocab_size=UNSET if model.text is None else model.text.prompter.builder.info.vocab_size,
    )


def _json(value: Mapping[str, object], *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=_JSON)
