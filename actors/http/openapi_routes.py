"""What describes a server's routes: the OpenAPI document for programs, and a page on it for people.

Both are made once, when the server starts, of what `actors/http/routes.py` found to serve; the shapes are
`protocols/openapi/document.py` and `actors/http/openapi_page.py`. Who may read one may read the other.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...protocols.openapi.document import document
from .dialects import DIALECTS
from .openapi_page import POLICY, page

_PATHS: Final = ("/openapi.json", "/docs")
_PAGE_FIELDS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Described:
    """The endpoints of both."""

    def __init__(self, paths: Collection[str], *, needs_key: bool) -> None:
        """`paths`: of all other routes, as the document names them."""
        version = importlib.metadata.version("sensorium")
        parts = [dialect.operations for dialect in DIALECTS]
        made = document(parts, {*paths, *_PATHS}, version=version, needs_key=needs_key)
        self._document = msgspec.json.encode(made)
        self._page = page(made)

    async def openapi(self, _: Request) -> Response:
        """The OpenAPI document."""
        return Response(self._document, media_type="application/json")

    async def docs(self, _: Request) -> Response:
        """The page."""
        return Response(self._page, headers=_PAGE_FIELDS, media_type="text/html")
