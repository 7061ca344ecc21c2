"""The dialect of live sessions."""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from ....protocols.realtime.operations import OPERATIONS
from ..dialect import Dialect, route
from ..service import Service
from .routes import RealtimeRoutes
from .websocket import realtime_route


def _routes(service: Service) -> list[Route]:
    realtime = RealtimeRoutes(service)
    found = [route("/v1/realtime", realtime.realtime, "GET")]
    if service.transcribing or any(model.can_chat for model in service.models.values()):
        found.append(route("/v1/realtime/client_secrets", realtime.client_secrets, "POST", options=()))
    return found


REALTIME: Final = Dialect(
    operations=OPERATIONS, routes=_routes, sockets=lambda service: [realtime_route(service)]
)
