"""The console's routes: files of this package, read once, which say nothing of the server they come from.

So they need no key; everything the page shows comes from routes that do. The page's policy lets it load
scripts and styles of its own origin only, and connect nowhere else. `static/` has the page, `client/js/` the
module under it, which browsers and Node use without the page, too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ....protocols.errors import NotFoundError

PAGE: Final = "/console"
_STATIC: Final = Path(__file__).parent / "static"
_MODULE: Final = Path(__file__).parents[3] / "client" / "js"
_INDEX: Final = "index.html"
_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".ts": "text/plain",
}
_FIELDS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob:; media-src 'self' blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Permissions-Policy": "camera=(self), microphone=(self), display-capture=(self), geolocation=()",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


class ConsoleRoutes:
    """The endpoints."""

    def __init__(self) -> None:
        self._files = {path.name: _read(path) for path in _STATIC.iterdir() if path.suffix in _TYPES}
        module = {f"sdk/{path.name}": _read(path) for path in _MODULE.iterdir() if path.suffix in _TYPES}
        self._files |= module

    async def page(self, request: Request) -> Response:
        """The page itself."""
        return _response(request, self._files[_INDEX])

    async def file(self, request: Request) -> Response:
        """A file of the page. Raises NotFoundError."""
        found = self._files.get(request.path_params["file"])
        if found is None:
            raise NotFoundError(f"The console has no file {request.url.path[:80]}; its page is {PAGE}.")
        return _response(request, found)


def is_console(path: str) -> bool:
    """Whether a path is one of the console's, which need no key."""
    return path == PAGE or path.startswith(f"{PAGE}/")


def leads_to_console(request: Request) -> bool:
    """Whether a person's browser has opened the server's address."""
    is_read = request.method in ("GET", "HEAD") and request.url.path == "/"
    return is_read and "text/html" in request.headers.get("accept", "")


def to_console() -> Response:
    """Leads there, also below a path that a proxy takes off."""
    return RedirectResponse(PAGE.removeprefix("/"), 307, headers={"Vary": "Accept"})


def _read(path: Path) -> _File:
    content = path.read_bytes()
    return _File(content, _TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _response(request: Request, file: _File) -> Response:
    fields = _FIELDS | {"ETag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=fields)
    return Response(file.content, headers=fields, media_type=file.media_type)
