"""The dialect of `/v1/responses`."""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from ....protocols.responses.operations import ITEMS_QUERY, OPERATIONS, RESPONSE_QUERY
from ..dialect import Dialect, route
from ..service import Service
from .routes import ResponseRoutes
from .websocket import response_sockets


def _routes(service: Service) -> list[Route]:
    if not service.has_chat_template:
        return []
    responses = ResponseRoutes(service)
    return [
        route("/v1/responses", responses.create, "POST", options=()),
        route("/v1/responses/input_tokens", responses.input_tokens, "POST", options=()),
        route("/v1/responses/{id}", responses.one, "GET", "DELETE", options=RESPONSE_QUERY),
        route("/v1/responses/{id}/cancel", responses.cancel, "POST", options=()),
        route("/v1/responses/{id}/input_items", responses.input_items, "GET", options=ITEMS_QUERY),
    ]


RESPONSES: Final = Dialect(operations=OPERATIONS, routes=_routes, sockets=response_sockets)
