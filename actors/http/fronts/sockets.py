"""One WebSocket to the front that has what it names: messages both ways, as they come.

A WebSocket with an ephemeral key of another front is relayed from its handshake on. One whose first message
names what another front has (`session.resume`, or a `response.create` with `previous_response_id`) is open
already: that message is relayed, and all that follows. A client that is cut off leaves its session waiting at
its front, because that connection ends without a goodbye, too. Read `relaying.py` for requests.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket

from ....protocols.errors import UnavailableError
from ...callers import Caller
from ...fronts.fronts import Front, Fronts
from ...fronts.listener import RelayedFor
from ...relay.connections import ServerGoneError
from ...relay.live_connection import Closed, LiveConnection, RefusedError
from ...runtime.nursery import open_work
from ...telemetry.metrics import Metrics
from ..api_keys import KEY_SUBPROTOCOL
from ..client_socket import LOST, ClientSocket
from .relaying import relayed_headers, target_of, unreachable

logger = logging.getLogger(__name__)

_LIVE: Final = "/v1/realtime"
_NO_CODE: Final = 1005
_CLOSE_WAIT_S: Final = 2.0
"""How long the client may take to answer our close."""
Send = Callable[[str | bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class End:
    """How a client's WebSocket is to be closed."""

    code: int
    reason: str = ""


_LOST_FRONT: Final = End(1001, "The connection to the session's server was lost.")
_GIVEN_UP: Final = End(1012, "The server of this session is gone; open another session.")


@dataclass(frozen=True, slots=True)
class SocketRelay:
    """Relays one WebSocket to a front."""

    front: Front
    fronts: Fronts
    metrics: Metrics
    websocket: WebSocket
    caller: Caller
    on_drain: set[Callable[[], None]]
    """Called when this front begins to stop: sessions that can be resumed are cut off then, to be resumed
    through another one."""

    async def from_handshake(self) -> None:
        """Relay a WebSocket that has not been accepted, whose ephemeral key the front has made.

        Raises UnavailableError where the front cannot be reached.
        """
        websocket = self.websocket
        try:
            link = await self._open("key")
        except RefusedError as error:
            self._count("refused")
            await _refusal(error)(websocket.scope, websocket.receive, websocket.send)
            return
        await websocket.accept(link.subprotocol)
        socket = ClientSocket(websocket)
        end = await self._relay(link, socket, socket.send)
        await closed(socket, end)

    async def go_on(self, first: Sequence[str | bytes], socket: ClientSocket, send: Send) -> End | None:
        """Relay a WebSocket that is open: the messages that have been read of it, and then all; what the
        front says goes to `send`, which may wait.

        How it is to be closed; None where the client has left. Raises UnavailableError where the front
        cannot be reached, or takes no WebSocket.
        """
        try:
            link = await self._open("id")
        except RefusedError as error:
            self._count("refused")
            logger.warning("the front at %s refuses a WebSocket: status %s", self.front.address, error)
            raise unreachable() from None
        return await self._relay(link, socket, send, first)

    async def _open(self, reason: RelayedFor) -> LiveConnection:
        scope = self.websocket.scope
        headers = relayed_headers(HTTPConnection(scope), self.fronts, self.caller, reason, method=b"GET")
        offered: list[str] = scope.get("subprotocols", [])
        try:
            return await LiveConnection.open(
                self.front.open,
                authority=str(self.front.address),
                target=target_of(scope).decode("latin-1"),
                headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers],
                subprotocols=[
                    each for each in offered if reason == "key" or not each.startswith(KEY_SUBPROTOCOL)
                ],
                max_message_bytes=None,  # what a front says is for its own clients to bear
            )
        except ServerGoneError as error:
            gone = unreachable(is_refused=error.is_refused)
            self._count(gone.code)
            raise gone from None

    async def _relay(
        self, link: LiveConnection, socket: ClientSocket, send: Send, first: Sequence[str | bytes] = ()
    ) -> End | None:
        ends: list[End] = []
        """How it has ended on this side, if it has; the first counts."""

        def drain() -> None:
            if self.websocket.scope["path"] == _LIVE:
                ends.append(End(1001, "The server is shutting down."))
                nursery.cancel_scope.cancel()

        async def from_client() -> None:
            with suppress(ServerGoneError):  # what the front has said before its end is read by the other
                for frame in first:
                    await link.send(frame)
            while (more := await socket.receive()) is not None:
                with suppress(ServerGoneError):
                    await link.send(more)
            nursery.cancel_scope.cancel()

        try:
            with self.front.relaying() as given_up:
                async with open_work() as nursery:
                    self.on_drain.add(drain)
                    nursery.start_soon(from_client)
                    ends.append(await self._from_front(link, send))
                    nursery.cancel_scope.cancel()
            if given_up.cancelled_caught:
                ends.append(_GIVEN_UP)
        finally:
            self.on_drain.discard(drain)
            with trio.CancelScope(shield=True):
                if not ends and socket.close_code != LOST:
                    await link.close(socket.close_code)
                else:
                    await link.drop()
        end = ends[0] if ends else None
        self._count("server_lost" if end in (_LOST_FRONT, _GIVEN_UP) else "answered")
        return end

    async def _from_front(self, link: LiveConnection, send: Send) -> End:
        try:
            while not isinstance(found := await link.receive(), Closed):
                await send(found)
            return End(1000 if found.code == _NO_CODE else found.code, found.reason)
        except ServerGoneError as error:
            logger.info("the front at %s: %s", self.front.address, error)
            return _LOST_FRONT

    def _count(self, outcome: str) -> None:
        self.metrics.relays.labels("websocket", outcome).inc()


async def closed(socket: ClientSocket, end: End | None) -> None:
    """Close the client's WebSocket, and wait a moment for its answer; None: it has left."""
    if end is None:
        return
    await socket.close(end.code, end.reason)
    with trio.move_on_after(_CLOSE_WAIT_S):
        while await socket.receive() is not None:
            pass


def close_of(error: UnavailableError) -> End:
    """How a WebSocket is closed whose front cannot be reached: for good, or for now."""
    return End(1012 if error.code == "front_lost" else 1013, error.message)


def _refusal(refused: RefusedError) -> Response:
    """The answer to the handshake as the front has given it."""
    answer = refused.response
    headers = {
        name: answer.headers[name]
        for name in ("Content-Type", "Retry-After", "WWW-Authenticate")
        if name in answer.headers
    }
    return Response(bytes(answer.body or b""), answer.status_code, headers)
