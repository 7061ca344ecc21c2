"""The REST routes of live sessions: ephemeral keys, and an answer to requests without WebSocket."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from ....protocols.errors import UpgradeRequiredError
from ....protocols.realtime.client_secrets import ClientSecret, parse_client_secret
from ....realtime.session import Session
from ...transport.websocket import PROXY_HINT
from ..chat.text_requests import json_response
from ..service import Service
from ..uploads import read_json_body

_SECRET_BODY_BYTES: Final = 256 * 1024
"""More than any session's settings."""


class RealtimeRoutes:
    """The endpoints. Methods take a request and give a response or raise a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def realtime(self, _: Request) -> Response:
        """Live sessions, asked for without a WebSocket."""
        raise UpgradeRequiredError(
            f"Live sessions speak WebSocket, and the request has no `Upgrade: websocket`. {PROXY_HINT}"
        )

    async def client_secrets(self, request: Request) -> Response:
        """A short-lived key for live sessions that begin as the body says."""
        secret_request = parse_client_secret(await read_json_body(request, max_bytes=_SECRET_BODY_BYTES))
        patch = secret_request.patch
        config = self._service.session_config(*self._service.begun_with(patch))
        session = Session(config, lambda prefix: f"{prefix}_{uuid4().hex[:24]}").view()
        value, expires_at = self._service.secrets.issue(
            patch,
            secret_request.seconds,
            owner=self._service.caller(request),
            is_single_use=secret_request.is_single_use,
        )
        return json_response(ClientSecret(value, expires_at, session))
