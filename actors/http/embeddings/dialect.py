"""The dialect of vectors of texts: embeddings."""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from ....protocols.embeddings.operations import OPERATIONS
from ..dialect import Dialect, route
from ..service import Service
from .routes import EmbeddingRoutes


def _routes(service: Service) -> list[Route]:
    if not any(model.embeds or model.text for model in service.models.values()):
        return []
    return [route("/v1/embeddings", EmbeddingRoutes(service).embeddings, "POST", options=())]


EMBEDDINGS: Final = Dialect(operations=OPERATIONS, routes=_routes)
