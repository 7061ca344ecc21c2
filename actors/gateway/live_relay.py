"""One WebSocket to one of the servers: messages both ways, and back to its server after a cut.

A live session belongs to the server that made it. A client whose connection was lost opens another one and
sends `session.resume` as its first event (docs/sessions.md): it is relayed to that server, and where that is
not known, as after a restart of the gateway, each server is asked. A client that is cut off leaves its
session waiting at its server, because that connection ends without a goodbye, too. A session whose server is
gone for good ends with 1012: its client opens another one. Read next: `actors/relay/live_connection.py`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import trio
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from ...protocols.errors import SensoriumError, UnavailableError
from ...protocols.realtime.codec import encode_event
from ...protocols.realtime.events import Error, ErrorDetail
from ..relay.connections import ServerGoneError
from ..relay.live_connection import Closed, LiveConnection, RefusedError
from ..runtime.nursery import open_work
from .affinity import Hints, hints_of_json, id_made, ids_of_path
from .identity import Client, secret_name
from .routing import Route
from .servers import Server
from .state import GatewayState

logger = logging.getLogger(__name__)

_FULL: Final = frozenset({429, 503, 529})
_TAKES_NONE: Final = frozenset(
    {"too_many_sessions", "draining", "server_draining", "unavailable", "overloaded"}
)
"""Errors as first events that another server may not have."""
_RETAINED_BYTES: Final = 256 * 1024
"""Of what a client sends before its server's first event, kept for another server."""
_RESUME_S: Final = 10.0
_LOOK_S: Final = 1.0
_HINT_CHARS: Final = 2048
_LOST_CODE: Final = 1006
"""Of a client that ended without a close: its session waits for it."""
_NO_CODE: Final = 1005


class _Event(msgspec.Struct):
    """What is looked at of an event."""

    type: str = ""
    session_id: str = ""
    session: dict[str, Any] = {}
    error: dict[str, Any] = {}


_decode: Final = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True)
class _End:
    """How a client's WebSocket is closed."""

    code: int
    reason: str = ""


class LiveRelay:
    """Relays WebSockets for one gateway."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._going: set[_Session] = set()

    async def serve(self, scope: Scope, receive: Receive, send: Send, client: Client) -> None:
        """Relay one WebSocket to its end. Raises SensoriumError where none was opened."""
        state = self._state
        state.sessions.check(client.caller, is_shared=state.identity.is_shared)
        connection = HTTPConnection(scope)
        ids = ids_of_path(scope["path"])
        if client.shows_secret and client.key is not None:
            ids = (*ids, secret_name(client.key))
        hints = Hints(connection.query_params.get("model"), ids)
        session = _Session(state, connection, client, Route(state, hints), receive, send)
        self._going.add(session)
        try:
            with state.holding(state.sessions, client.caller):
                await session.run()
        finally:
            self._going.discard(session)

    def drain(self) -> None:
        """The gateway ends: sessions that can be resumed are cut off, to be resumed through another one."""
        for session in tuple(self._going):
            session.cut()


@dataclass(eq=False, slots=True)
class _Session:
    """One client's WebSocket, and that to its server."""

    state: GatewayState
    connection: HTTPConnection
    client: Client
    route: Route
    receive: Receive
    send: Send
    server: Server | None = None
    link: LiveConnection | None = None
    tried: list[Server] = field(default_factory=list)
    sent: list[str | bytes] | None = field(default_factory=list)
    """What the client has sent before the server's first event; None once no other server can be tried."""
    num_sent_bytes: int = 0
    has_answered: bool = False
    """The server has sent its first event."""
    is_moving: bool = False
    """Another server is being found: `link` is closed, and nobody else is to use it."""
    is_resumable: bool = False
    end: _End | None = None
    """How the client is to be closed."""
    left_with: int | None = None
    """The code with which the client has left."""
    relaying: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self) -> None:
        """To its end. Raises SensoriumError where none was opened."""
        await self.receive()  # `websocket.connect`
        refused = await self._open()
        if refused is not None:
            await self._deny(refused)
            return
        assert self.link is not None
        await self.send({"type": "websocket.accept", "subprotocol": self.link.subprotocol})
        try:
            with suppress(OSError):  # the client has gone
                await self._relay()
        finally:
            with trio.CancelScope(shield=True):
                await self._leave_server()

    def cut(self) -> None:
        """Close the client, and leave the session to its server, where it can be resumed."""
        if self.is_resumable:
            self.end = self.end or _End(1001, "The gateway is shutting down.")
            self.relaying.cancel()

    async def _relay(self) -> None:
        """Both ways, on one server after the other, until either side has ended; then close the client."""
        while self.end is None and self.left_with is None:
            assert self.server is not None
            self.is_moving = False
            with self.server.holding(is_session=True) as holding:
                async with open_work() as nursery:
                    self.relaying = nursery.cancel_scope
                    nursery.start_soon(self._from_client, nursery)
                    nursery.start_soon(self._from_server, nursery)
            if holding.cancelled_caught and self.end is None:
                self.end = _gone()
        if self.end is not None:
            name = "" if self.server is None else self.server.name
            self.state.metrics.sessions.labels(name, str(self.end.code)).inc()
            await self.send({"type": "websocket.close", "code": self.end.code, "reason": self.end.reason})

    async def _leave_server(self) -> None:
        """End the server's WebSocket as the client has ended its own: without a close, where it had none."""
        if self.link is None:
            return
        if self.left_with is not None and self.left_with != _LOST_CODE:
            await self.link.close(self.left_with)
        else:
            await self.link.drop()

    async def _from_client(self, nursery: trio.Nursery) -> None:
        while True:
            message = await self.receive()
            if message["type"] != "websocket.receive":
                self.left_with = message.get("code", _LOST_CODE)
                nursery.cancel_scope.cancel()
                return
            text = message.get("text")
            data: str | bytes = text if text is not None else message["bytes"]
            if self.sent is not None:
                is_first = not self.sent
                self.sent.append(data)
                self.num_sent_bytes += len(data)
                if is_first and self._leads_elsewhere(data):
                    await self._move(nursery)
                    return
                if self.is_moving:  # the other task sends what is kept
                    if self.num_sent_bytes > _RETAINED_BYTES:
                        await trio.sleep_forever()
                    continue
                if self.num_sent_bytes > _RETAINED_BYTES or self.has_answered:
                    self.sent = None
            try:
                assert self.link is not None
                await self.link.send(data)
            except ServerGoneError:
                await trio.sleep_forever()  # the other task reads what the server said before, and its end

    async def _from_server(self, nursery: trio.Nursery) -> None:
        while True:
            link = self.link
            assert link is not None
            try:
                found = await link.receive()
            except ServerGoneError as error:
                if not self.is_moving:
                    await self._lost(error, nursery)
                return
            if isinstance(found, Closed):
                self.end = _End(1000 if found.code == _NO_CODE else found.code, found.reason)
                nursery.cancel_scope.cancel()
                return
            if not self.has_answered:
                event = _read(found)
                if _is_full(event) and self.sent is not None and self._others():
                    await self._move(nursery)
                    return
                self._note(event)
            elif self._makes_responses and isinstance(found, str):
                self._learn(found)
            await self._tell(found)

    async def _tell(self, data: str | bytes) -> None:
        """Raises OSError where the client has gone."""
        if isinstance(data, str):
            await self.send({"type": "websocket.send", "text": data})
        else:
            await self.send({"type": "websocket.send", "bytes": data})

    @property
    def _makes_responses(self) -> bool:
        return bool(self.connection.scope["path"] == "/v1/responses")

    def _note(self, event: _Event | None) -> None:
        """The server's first event: the session has begun there."""
        self.has_answered = True
        if event is not None and event.type == "session.created" and self.server is not None:
            name = event.session.get("id")
            if isinstance(name, str):
                self.state.affinity.made(name, self.server.name)
            self.is_resumable = bool(event.session.get("resume_token"))

    def _learn(self, text: str) -> None:
        made = id_made(text[:_HINT_CHARS].encode(errors="replace"))
        if made is not None and self.server is not None:
            self.state.affinity.made(made, self.server.name)

    def _leads_elsewhere(self, data: str | bytes) -> bool:
        """Whether the client's first event is for a session, or a response, that may be another server's."""
        if _resumption(data) is not None:
            return True
        if not self._makes_responses or not isinstance(data, str):
            return False
        owner = self.state.servers.find(self.state.affinity.owner(hints_of_json(data.encode()).ids))
        return owner is not None and owner is not self.server

    async def _move(self, nursery: trio.Nursery) -> None:
        """Go on with another server. Afterwards the session is relayed there, or `end` says why it is not."""
        if self.is_moving:
            await trio.sleep_forever()
        self.is_moving = True
        link, self.link = self.link, None
        assert link is not None
        await link.goodbye()
        first = self.sent[0] if self.sent else ""
        resumption = _resumption(first)
        if resumption is not None:
            await self._resume(resumption, first)
        else:
            await self._begin_elsewhere()
        nursery.cancel_scope.cancel()

    async def _begin_elsewhere(self) -> None:
        """On a server that was not tried; it gets what the client has sent."""
        hints = Hints()
        if self._makes_responses and self.sent and isinstance(self.sent[0], str):
            hints = hints_of_json(self.sent[0].encode())
        owner = self.state.servers.find(self.state.affinity.owner(hints.ids))
        for server in [owner] if owner is not None else self._others():
            self.tried.append(server)
            try:
                self.link = link = await self._connect(server)
                with trio.fail_after(_RESUME_S):
                    for data in self.sent or ():
                        await link.send(data)
            except (ServerGoneError, RefusedError, trio.TooSlowError) as error:
                logger.info("%s: %s", server.name, error or "too slow")
                if self.link is not None:
                    await self.link.drop()
                    self.link = None
                continue
            self.server = server
            self.state.metrics.retries.labels(server.name, "full").inc()
            return
        self.end = _End(1013, "No server takes this session; try again later.")

    async def _resume(self, resumption: _Event, frame: str | bytes) -> None:
        """On the server that has the session."""
        owner = self.state.servers.find(self.state.affinity.owner([resumption.session_id]))
        is_reached, is_lost = True, True
        answer: str | bytes | None = None
        for server in [owner] if owner is not None else list(self.state.servers):
            try:
                with trio.fail_after(_RESUME_S):
                    self.link, answer = await self._ask_to_resume(server, frame)
            except (ServerGoneError, RefusedError, trio.TooSlowError) as error:
                logger.info("%s does not resume a session: %s", server.name, error or "too slow")
                is_reached = False
                is_refused = isinstance(error, ServerGoneError) and error.is_refused
                is_lost = is_lost and (is_refused or not server.health.takes_work)
                continue
            if self.link is not None:
                self.server, self.sent = server, None
                self.has_answered = self.is_resumable = True
                self.state.affinity.made(resumption.session_id, server.name)
                self.state.metrics.resumed.labels(server.name).inc()
                break
        if self.link is None and not is_reached:
            answer = _not_resumed(is_lost=is_lost)
        if answer is not None:
            await self._tell(answer)
        if self.link is not None:
            return
        if is_reached:
            self.end = _End(1008, "The session is not there any more.")
        else:
            self.end = _gone() if is_lost else _End(1013, "The server cannot be reached now; try again.")

    async def _ask_to_resume(
        self, server: Server, frame: str | bytes
    ) -> tuple[LiveConnection | None, str | bytes | None]:
        """What a server answers, and its WebSocket if it has the session.

        Raises ServerGoneError and RefusedError.
        """
        link = await self._connect(server)
        is_kept = False
        try:
            await link.send(frame)
            while True:
                found = await link.receive()
                if isinstance(found, Closed):
                    return None, None
                event = _read(found)
                if event is not None and event.type == "session.resumed":
                    is_kept = True
                    return link, found
                if event is not None and event.type == "error":
                    is_kept = event.error.get("code") != "session_not_found" and (
                        event.error.get("code") not in _TAKES_NONE
                    )
                    return (link if is_kept else None), found
        finally:
            if not is_kept:
                with trio.CancelScope(shield=True):
                    await link.goodbye()

    async def _lost(self, error: ServerGoneError, nursery: trio.Nursery) -> None:
        """The server's WebSocket broke: the session may still be there, and if it never began, begins
        elsewhere."""
        assert self.server is not None
        logger.info("a WebSocket to %s: %s", self.server.name, error)
        if not self.has_answered and self.sent is not None and self._others():
            self.server.failed()
            await self._move(nursery)
            return
        self.end = _End(1001, "The connection to the server was lost.")
        try:
            with trio.move_on_after(_LOOK_S):
                await trio.aclose_forcefully(await self.server.connections.open())
        except ServerGoneError as found:
            self.server.failed()
            if found.is_refused:
                self.end = _gone()
        nursery.cancel_scope.cancel()

    def _others(self) -> list[Server]:
        """Servers that may take the session, and were not tried."""
        return [
            server
            for server in self.route.candidates()
            if server.takes_work and server.has_room and server not in self.tried
        ]

    async def _open(self) -> RefusedError | None:
        """Connect to a server; how the last one has refused where none was opened.

        Raises SensoriumError where none could be asked.
        """
        refused: RefusedError | None = None
        while (server := self._pick(refused)) is not None:
            self.tried.append(server)
            try:
                self.link = await self._connect(server)
            except RefusedError as error:
                refused = error
                if error.response.status_code not in _FULL:
                    return refused
                self.state.metrics.retries.labels(server.name, "full").inc()
            except ServerGoneError as error:
                logger.info("%s: %s", server.name, error)
                server.failed()
                self.state.metrics.retries.labels(server.name, "unreachable").inc()
            else:
                self.server = server
                return None
        if refused is None:
            raise UnavailableError("No server takes this session; try again.")
        return refused

    def _pick(self, refused: RefusedError | None) -> Server | None:
        try:
            return self.route.pick(self.tried)
        except SensoriumError:
            if refused is None:
                raise
            return None  # what a server has answered says more

    async def _connect(self, server: Server) -> LiveConnection:
        """Raises ServerGoneError and RefusedError."""
        scope, identity = self.connection.scope, self.state.identity
        target = server.address.prefix + scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            target += "?" + scope["query_string"].decode("latin-1")
        headers = identity.headers(
            self.connection, self.client, method=b"GET", target=target.encode("latin-1")
        )
        return await LiveConnection.open(
            server.connections.open,
            authority=server.address.authority,
            target=target,
            headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers],
            subprotocols=identity.subprotocols(self.connection, self.client),
            max_message_bytes=self.state.config.max_message_bytes,
        )

    async def _deny(self, refused: RefusedError) -> None:
        """Answer the handshake as the server has."""
        response = refused.response
        headers = {
            name: response.headers[name]
            for name in ("Content-Type", "Retry-After")
            if name in response.headers
        }
        answer = Response(bytes(response.body or b""), response.status_code, headers)
        await WebSocket(self.connection.scope, self.receive, self.send).send_denial_response(answer)


def _read(data: str | bytes) -> _Event | None:
    """An event, None if it is none."""
    if not data.startswith("{" if isinstance(data, str) else b"{"):  # type: ignore[arg-type]
        return None
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _resumption(data: str | bytes) -> _Event | None:
    """The client's `session.resume`, if that is what it has sent."""
    if len(data) > _HINT_CHARS:
        return None
    event = _read(data)
    return event if event is not None and event.type == "session.resume" and event.session_id else None


def _is_full(event: _Event | None) -> bool:
    """Whether a server says that it takes no session now."""
    return event is not None and event.type == "error" and event.error.get("code") in _TAKES_NONE


def _gone() -> _End:
    return _End(1012, "The server of this session is gone; open another session.")


def _not_resumed(*, is_lost: bool) -> str:
    """What a client is told whose session's server cannot be reached: for now, or as it is gone."""
    detail = ErrorDetail(
        type="server_error",
        code="session_lost" if is_lost else "unavailable",
        message="The server of this session is gone; open another session."
        if is_lost
        else "The server of this session cannot be reached now; try again.",
    )
    return encode_event(Error(event_id="event_gateway", server_event_seq=0, error=detail))
