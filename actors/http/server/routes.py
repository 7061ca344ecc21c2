"""The routes about the server itself: probes, models, metrics."""

from __future__ import annotations

import importlib.metadata
from datetime import UTC, datetime

import trio
from msgspec import UNSET
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from ....protocols.server.models import ModelCard, models_body
from ..chat.text_requests import JSON, json_response
from ..service import ServedModel, Service


class ServerRoutes:
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

    async def list_models(self, _: Request) -> Response:
        """Every served model, by each of its names."""
        names = (*self._service.models, *self._service.aliases)
        cards = (_card(self._service.model(name), name) for name in names)
        return Response(models_body(cards), media_type=JSON)

    async def get_model(self, request: Request) -> Response:
        """One served model."""
        name = request.path_params["id"]
        return json_response(_card(self._service.model(name), name))


def _card(model: ServedModel, name: str) -> ModelCard:
    """Of a model by one of its names."""
    speech = model.transcription
    languages = UNSET if speech is None else speech.languages
    info = None if model.text is None else model.text.prompter.builder.info
    embedding = None if model.embeds is None else model.embeds.embedding
    return ModelCard(
        id=name,
        created=model.created,
        abilities=model.abilities,
        input_modalities=model.input_modalities,
        languages=languages,
        delays_ms=UNSET
        if speech is None or not speech.delays
        else tuple(sorted(each.delay_ms for each in speech.delays)),
        vocab_size=UNSET if info is None else info.vocab_size,
        embedding_size=UNSET if embedding is None else embedding.size,
        pooling=UNSET if embedding is None else embedding.pooling,
        runs=model.engine.info.runs,
        root=model.name,
        max_model_len=model.engine.info.max_context,
        display_name=name,
        created_at=datetime.fromtimestamp(model.created, UTC),
    )
