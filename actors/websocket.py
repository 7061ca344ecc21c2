"""`/v1/realtime`: who may open a session, and the socket a `SessionActor` talks through.

Refusals before the handshake are HTTP answers in the error shape (401); refusals after it are one `error`
event and a close, because that is all a WebSocket client can read. The session itself is
`actors/session.py`.
"""

from __future__ import annotations

import logging
from typing import Final

import trio
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from ..protocols.errors import ClientError, UnauthorizedError
from ..realtime.config import RealtimeModel, SessionConfig
from .http import error_response
from .outbox import Outbox
from .service import Service, bearer_key
from .session import CLOSE_WAIT_S, SessionActor, drop_input, refusal
from .session_meter import SessionMeter

logger = logging.getLogger(__name__)

_SUBPROTOCOL: Final = "realtime"
_KEY_SUBPROTOCOL: Final = "openai-insecure-api-key."


class RealtimeSocket:
    """An accepted WebSocket in the shape sessions use."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def receive(self) -> str | bytes | None:
        """The next message; None when the client has gone."""
        if self._websocket.client_state is WebSocketState.DISCONNECTED:
            return None
        message = await self._websocket.receive()
        if message["type"] != "websocket.receive":
            return None
        text: str | None = message.get("text")
        data: bytes | None = message.get("bytes")
        return text if text is not None else data or b""

    async def send(self, frame: str) -> None:
        """Send a text frame; nothing happens if the client has gone."""
        try:
            await self._websocket.send_text(frame)
        except (WebSocketDisconnect, RuntimeError):
            return

    async def close(self, code: int, reason: str) -> None:
        """Start the closing handshake."""
        try:
            # RFC 6455: a control frame carries at most 125 bytes, two of them the code.
            await self._websocket.close(code, reason.encode()[:123].decode(errors="ignore"))
        except (WebSocketDisconnect, RuntimeError):
            return


def realtime_route(service: Service) -> WebSocketRoute:
    """The route of live sessions."""

    async def endpoint(websocket: WebSocket) -> None:
        try:
            service.authenticate(_key(websocket))
        except UnauthorizedError as error:
            await websocket.send_denial_response(error_response(error))
            return
        offered = websocket.scope.get("subprotocols", [])
        await websocket.accept(_SUBPROTOCOL if _SUBPROTOCOL in offered else None)
        await _serve(service, websocket)

    return WebSocketRoute("/v1/realtime", endpoint)


async def _serve(service: Service, websocket: WebSocket) -> None:
    socket = RealtimeSocket(websocket)
    limits = service.config.realtime
    if service.is_draining:
        await _refuse(socket, 1012, "draining", "The server is shutting down.", "server_error")
        return
    if len(service.sessions) >= limits.max_sessions:
        message = f"The server already serves {limits.max_sessions} sessions; try again later."
        await _refuse(socket, 1013, "too_many_sessions", message, "overloaded_error")
        return
    try:
        model = service.transcribing_model(websocket.query_params.get("model"))
    except ClientError as error:
        await _refuse(socket, 1008, error.code, error.message, error.type, error.param)
        return
    outbox = Outbox(
        max_events=limits.outbox_events,
        max_bytes=limits.outbox_bytes,
        # Before the connection itself is cut, so that the close frame may still arrive.
        send_timeout_s=service.config.listen.send_timeout_s / 2,
    )
    session = SessionActor(
        socket,
        _session_config(service, model.name),
        {name: served.decoder for name, served in service.transcribing.items()},
        service.activity,
        outbox,
        SessionMeter(service.metrics),
    )
    with service.live(session):
        await session.run()
    service.metrics.sessions.labels(str(outbox.close_code or "client")).inc()


async def _refuse(
    socket: RealtimeSocket, close_code: int, code: str, message: str, kind: str, param: str | None = None
) -> None:
    await socket.send(refusal(code, message, kind=kind, param=param))
    await socket.close(close_code, message)
    with trio.move_on_after(CLOSE_WAIT_S) as scope:
        await drop_input(socket, scope)


def _key(websocket: WebSocket) -> str | None:
    header = bearer_key(websocket.headers.get("authorization"))
    if header is not None:
        return header
    for offered in websocket.scope.get("subprotocols", []):
        if offered.startswith(_KEY_SUBPROTOCOL):
            return str(offered.removeprefix(_KEY_SUBPROTOCOL))
    return None


def _session_config(service: Service, model: str) -> SessionConfig:
    limits = service.config.realtime
    return SessionConfig(
        model=model,
        models=tuple(
            RealtimeModel(name, served.decoder.text.info.languages)
            for name, served in service.transcribing.items()
        ),
        max_append_bytes=limits.max_append_bytes,
        max_backlog_ms=limits.max_backlog_ms,
        max_turn_s=limits.max_turn_s,
        max_session_s=limits.max_session_s,
        idle_s=limits.idle_s,
        drain_s=service.config.listen.drain_s,
    )
