"""What answers while the models are being loaded: that the process lives, and that nothing else can be had.

Plain ASGI, between the connections and the application, which takes its place when it is there. Read next:
`actors/http/routes.py`.
"""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from ...protocols.errors import NotFoundError, UnavailableError
from .dialects import errors_for
from .error_bodies import error_response
from .routes import LIVE_PATHS, OPEN_PATHS


class StartupApp:
    """An ASGI application that is another one as soon as that is known."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    def open(self, app: ASGIApp) -> None:
        """Everything is ready: hand every request on from now."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket."""
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] in LIVE_PATHS:
            await JSONResponse({"status": "ok"})(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] == "/health":
            await JSONResponse({"status": "loading"}, 503)(scope, receive, send)
        else:
            refusal = error_response(
                UnavailableError("The models are being loaded.", code="loading"), errors_for(scope)
            )
            if scope["type"] == "http":
                await refusal(scope, receive, send)
            else:
                await WebSocket(scope, receive, send).send_denial_response(refusal)


class HealthApp:
    """An ASGI application that hands on the probes of another one, and knows nothing else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        refusal = error_response(
            NotFoundError("Only /live, /health and /ping are answered at this port."),
            errors_for(scope),
        )
        if scope["type"] == "http":
            await refusal(scope, receive, send)
        else:
            await WebSocket(scope, receive, send).send_denial_response(refusal)
