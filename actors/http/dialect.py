"""What a dialect is: the routes of one API, the shape of its errors, and its part of the OpenAPI document.

A dialect has a folder here and one in `protocols/`, and one value of `Dialect`, which
`actors/http/dialects.py` lists: nothing else names it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from ...protocols.errors import MethodNotAllowedError
from ...protocols.openapi.operation import Operations
from ...protocols.query_string import check_body_address
from .error_bodies import OPENAI_ERRORS, ErrorShape
from .service import Service

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API on the wire."""

    operations: Operations
    """Every route that it may have, as the OpenAPI document describes it."""
    routes: Callable[[Service], Iterable[Route]] = lambda _: ()
    """Those that the served models can answer."""
    sockets: Callable[[Service], Iterable[WebSocketRoute]] = lambda _: ()
    errors: ErrorShape = OPENAI_ERRORS


def route(path: str, endpoint: Endpoint, *methods: str, options: Collection[str] | None = None) -> Route:
    """One REST route. `options`: the query parameters that it takes; None: the endpoint checks them."""

    async def checked(request: Request) -> Response:
        if request.method not in methods and not (request.method == "HEAD" and "GET" in methods):
            message = f"{path} takes {' or '.join(methods)}, not {request.method[:16]}."
            raise MethodNotAllowedError(message, (*methods, "HEAD") if "GET" in methods else methods)
        if options is not None:
            check_body_address(request.query_params, path, options)
        return await endpoint(request)

    # Without a method list starlette passes every method on: its own 405 is not in our error shape.
    made = Route(path, checked)
    made.methods = set()
    return made
