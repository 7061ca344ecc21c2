"""The routes about the server itself, as a dialect."""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from ....protocols.server.operations import OPERATIONS
from ..dialect import Dialect, route
from ..service import Service
from .routes import ServerRoutes


def _routes(service: Service) -> list[Route]:
    server = ServerRoutes(service)
    return [
        route("/health", server.health, "GET"),
        route("/live", server.live, "GET"),
        route("/ping", server.live, "GET", "POST"),
        route("/version", server.version, "GET"),
        route("/load", server.load, "GET"),
        route("/metrics", server.metrics, "GET"),
        route("/v1/models", server.list_models, "GET"),
        route("/v1/models/{id:path}", server.get_model, "GET"),
    ]


SERVER: Final = Dialect(operations=OPERATIONS, routes=_routes)
