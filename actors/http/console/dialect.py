"""The console as a dialect: served unless `--no-console` is given."""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from ....protocols.console.operations import OPERATIONS
from ..dialect import Dialect, route
from ..service import Service
from .routes import PAGE, ConsoleRoutes


def _routes(service: Service) -> list[Route]:
    if not service.config.console:
        return []
    console = ConsoleRoutes()
    return [route(PAGE, console.page, "GET"), route(f"{PAGE}/{{file:path}}", console.file, "GET")]


CONSOLE: Final = Dialect(operations=OPERATIONS, routes=_routes)
