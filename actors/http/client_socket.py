"""An accepted WebSocket of a client, in the shape sessions and relays use."""

from __future__ import annotations

from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

_SUBPROTOCOL: Final = "realtime"
_CLEAN_CLOSES: Final = frozenset({1000, 1003, 1005, 1007, 1008, 1009})
"""Close codes of a connection that ended on purpose: done, no code at all, and the refusals of what the other
side sent, ours among them. A client comes back after an accident only."""
_GOING: Final = frozenset({1001, 1002})
"""What a page says that is left, and what Caddy says to both sides when it reads its configuration again (2.6
in a frame without a mask, which is 1002)."""
LOST: Final = 1006
"""Of a client that ended without a close."""


class ClientSocket:
    """An accepted WebSocket in the shape sessions use."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self.closed_cleanly = False
        self.went_away = False
        self.close_code = LOST
        """How the client has closed it; `LOST` as long as it has not."""
        self._is_closing = False

    async def receive(self) -> str | bytes | None:
        """The next message; None when the client has gone."""
        if self._websocket.client_state is WebSocketState.DISCONNECTED:
            return None
        message = await self._websocket.receive()
        if message["type"] != "websocket.receive":
            code = message.get("code")
            self.close_code = LOST if code is None else code
            self.closed_cleanly = code in _CLEAN_CLOSES or (self._is_closing and code != LOST)
            self.went_away = code in _GOING
            return None
        text: str | None = message.get("text")
        data: bytes | None = message.get("bytes")
        return text if text is not None else data or b""

    async def send(self, frame: str | bytes) -> None:
        """Send a frame of text or of bytes; nothing happens if the client has gone."""
        try:
            if isinstance(frame, str):
                await self._websocket.send_text(frame)
            else:
                await self._websocket.send_bytes(frame)
        except (WebSocketDisconnect, RuntimeError):
            return

    async def close(self, code: int, reason: str) -> None:
        """Start the closing handshake."""
        self._is_closing = True
        try:
            # RFC 6455: a control frame carries at most 125 bytes, two of them the code.
            await self._websocket.close(code, reason.encode()[:123].decode(errors="ignore"))
        except (WebSocketDisconnect, RuntimeError):
            return


async def accepted(websocket: WebSocket) -> ClientSocket:
    """The socket, open. A page that sends its key as a subprotocol needs one that is agreed on."""
    offered = websocket.scope.get("subprotocols", [])
    await websocket.accept(_SUBPROTOCOL if _SUBPROTOCOL in offered else None)
    return ClientSocket(websocket)
