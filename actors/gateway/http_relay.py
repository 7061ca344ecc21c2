"""One HTTP request to one of the servers, and its answer back as it comes.

Until the answer begins, another server may be tried: a body up to a bound is kept for that. What has begun is
never begun again; it ends as its server ends it, and where that breaks off, the client sees that. Either side
that leaves ends the other, and who reads slowly holds up whoever writes. Read next:
`actors/gateway/routing.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Literal

import h11
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from ...protocols.errors import BadRequestError, SensoriumError, UnavailableError
from ...protocols.shared.event_stream import DONE
from ..http.error_bodies import error_shape
from ..http.uploads import BodyChunks
from ..relay.connections import ServerConnection, ServerGoneError
from ..relay.headers import Headers, to_client
from ..runtime.nursery import open_work
from ..transport.http_exchange import HALF_CLOSED
from .affinity import Hints, hints_of_form, hints_of_json, id_made, ids_of_path
from .identity import Client, secret_name
from .routing import Route
from .servers import Server
from .state import GatewayState

logger = logging.getLogger(__name__)

_FULL: Final = frozenset({429, 503, 529})
"""Statuses of a server that takes nothing more just now: another one may."""
_MAX_REFUSAL_BYTES: Final = 256 * 1024
_MAX_HINT_BYTES: Final = 2048
_INLINE_BYTES: Final = 64 * 1024
"""A body up to this long is sent before the answer is read; of a longer one, while it is."""
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REPEATABLE: Final = re.compile(
    r"/v1/(chat/completions|completions|embeddings|messages(/count_tokens)?|audio/\w+|responses/input_tokens)"
    r"|/(de)?tokenize"
)
"""What changes nothing on a server, and may be asked again where a server was lost before it answered."""
_COLLECTION_OF: Final = {
    "resp": "responses",
    "conv": "conversations",
    "file": "files",
    "batch": "batches",
    "cntr": "containers",
    "vs": "vector_stores",
}
_MAKES_SECRETS: Final = re.compile(r"/v1/realtime/(client_secrets|sessions|transcription_sessions)")
_SECRET_VALUE: Final = re.compile(rb'"value"\s*:\s*"(ek_[A-Za-z0-9_-]{8,200})"')
_SEARCH_S: Final = 2.0


@dataclass(slots=True)
class _Asked:
    """One request as servers get it."""

    scope: Scope
    headers: Callable[[bytes, bytes], Headers]
    body: bytes
    """All of it, or its beginning."""
    rest: BodyChunks | None
    """Of the body, what has not been read."""
    length: int | None
    """Of the whole body; None: it shows only at its end."""

    @property
    def method(self) -> str:
        method: str = self.scope["method"]
        return method

    @property
    def path(self) -> str:
        path: str = self.scope["path"]
        return path

    @property
    def is_repeatable(self) -> bool:
        return self.method in _SAFE_METHODS or _REPEATABLE.fullmatch(self.path) is not None


@dataclass(slots=True)
class _Refusal:
    """An answer that is held back while others are tried."""

    status: int
    headers: Headers
    body: bytes


_Outcome = Literal["done", "unreachable", "lost", "full", "broken"]


class HttpRelay:
    """Relays HTTP for one gateway."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state

    async def serve(self, scope: Scope, receive: Receive, send: Send, client: Client) -> None:
        """Answer one request. Raises SensoriumError where no answer has begun, and ClientDisconnect."""
        request = Request(scope, receive)
        state = self._state
        state.requests.check(client.caller, is_shared=state.identity.is_shared)
        with state.holding(state.requests, client.caller), state.replay_room() as room:
            asked = await self._read(request, client, room)
            hints = self._hints(request, asked)
            await _Relaying(state, asked, hints, client, receive, send).run()

    async def _read(self, request: Request, client: Client, room: int) -> _Asked:
        """The request, and of its body as much as may be kept."""
        chunks = BodyChunks(request, self._state.config.max_upload_bytes, "body")
        length = request.headers.get("content-length")
        chunks.check_announced(length or "")
        body, is_whole = bytearray(), False
        while len(body) <= room:
            try:
                body += await anext(chunks)
            except StopAsyncIteration:
                is_whole = True
                break
        return _Asked(
            request.scope,
            lambda method, target: self._state.identity.headers(
                request, client, method=method, target=target
            ),
            bytes(body),
            None if is_whole else chunks,
            len(body) if is_whole else (int(length) if length else None),
        )

    @staticmethod
    def _hints(request: Request, asked: _Asked) -> Hints:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        found = Hints()
        if asked.body and kind == "multipart/form-data":
            found = hints_of_form(asked.body)
        elif asked.body:
            found = hints_of_json(asked.body)
            if found.model is None and asked.rest is not None:  # the beginning of a long body is no JSON
                named = re.search(rb'"model"\s*:\s*"([^"\\]{1,200})"', asked.body)
                found = found._replace(model=named[1].decode(errors="replace") if named else None)
        return found._replace(ids=(*ids_of_path(asked.path), *found.ids))


@dataclass(slots=True)
class _Relaying:
    """One request on its way."""

    state: GatewayState
    asked: _Asked
    hints: Hints
    client: Client
    receive: Receive
    send: Send
    has_begun: bool = False
    """Of an answer something was sent to the client."""
    is_events: bool = False
    refusal: _Refusal | None = None
    error: SensoriumError | None = None
    body_error: Exception | None = None
    """What was wrong with the rest of the body."""
    tried: list[Server] = field(default_factory=list)
    is_ending: bool = False
    """The last part of the answer is being sent."""
    connection: ServerConnection | None = None
    """Over which a server is being asked."""
    is_stale: bool = False
    """The connection had been kept, and its end came before anything of an answer."""

    async def run(self) -> None:
        has_left = False
        async with open_work() as nursery:

            async def follow_client() -> None:
                nonlocal has_left
                while (message := await self.receive())["type"] != "http.disconnect":
                    if message["type"] == HALF_CLOSED and self.connection is not None:
                        await self.connection.half_close()  # the server finds out whether the client is there
                if self.is_ending:  # ASGI says so of an answer that is complete, too
                    return
                has_left = True
                nursery.cancel_scope.cancel()

            if self.asked.rest is None:
                nursery.start_soon(follow_client)
            await self._try_servers(nursery, follow_client)
            nursery.cancel_scope.cancel()
        if has_left:
            raise ClientDisconnect
        if self.has_begun:
            return
        if self.body_error is not None:
            raise self.body_error
        if self.refusal is not None:
            await self._start(self.refusal.status, self.refusal.headers, None)
            await self.send({"type": "http.response.body", "body": self.refusal.body})
            return
        raise self.error or UnavailableError("No server has answered; try again.")

    async def _try_servers(self, nursery: trio.Nursery, follow_client: Callable[[], Awaitable[None]]) -> None:
        state = self.state
        try:
            route = Route(state, self.hints)
            if route.needs_search:
                await self._search(route)
            while (server := route.pick(self.tried)) is not None:
                self.tried.append(server)
                outcome = await self._try(server, route, nursery, follow_client)
                if outcome == "done":
                    return
                if outcome in ("unreachable", "lost"):
                    server.failed()
                if outcome == "broken" or self.body_error is not None:
                    return
                if self.asked.rest is not None and outcome != "unreachable":
                    return  # of a body that is not kept, a part has gone
                if outcome == "lost" and not self.asked.is_repeatable:
                    self.error = UnavailableError(
                        "The server was lost before it answered; it may have carried out the request.",
                        code="server_lost",
                    )
                    return
                state.metrics.retries.labels(server.name, outcome).inc()
                logger.info("%s of %s: %s, another server is tried", self.asked.path, server.name, outcome)
        except SensoriumError as error:
            self.error = error

    async def _try(
        self,
        server: Server,
        route: Route,
        nursery: trio.Nursery,
        follow_client: Callable[[], Awaitable[None]],
    ) -> _Outcome:
        """Ask one server, and relay its answer."""
        outcome: _Outcome = "lost"
        with server.holding():
            outcome = await self._exchange(
                server, route, nursery, follow_client, is_fresh=self.asked.rest is not None
            )
            if outcome == "lost" and self.is_stale:
                outcome = await self._exchange(server, route, nursery, follow_client, is_fresh=True)
        if outcome == "lost" and self.has_begun:
            await self._break_off(server)
            return "broken"
        return outcome

    async def _exchange(
        self,
        server: Server,
        route: Route,
        nursery: trio.Nursery,
        follow_client: Callable[[], Awaitable[None]],
        *,
        is_fresh: bool,
    ) -> _Outcome:
        self.is_stale = False
        try:
            connection = await server.connections.take(is_fresh=is_fresh)
        except ServerGoneError as error:
            logger.info("%s %s", server.name, error)
            return "unreachable"
        is_over = False
        self.connection = connection
        try:
            await connection.send(*self._beginning(server))
            if self._is_inline:
                outcome = await self._take_answer(server, route, connection)
            else:
                async with open_work() as sending:
                    sending.start_soon(self._send_body, connection, nursery, follow_client)
                    outcome = await self._take_answer(server, route, connection)
                    sending.cancel_scope.cancel()
            is_over = True
            return outcome
        except ServerGoneError as error:
            logger.info("%s: %s", server.name, error)
            self.is_stale = connection.is_reused and not self.has_begun
            return "lost"
        except h11.LocalProtocolError as error:
            self.body_error = BadRequestError(f"The request cannot be passed on: {error}.")
            return "broken"
        finally:
            self.connection = None
            if is_over and connection.next_cycle():
                server.connections.give_back(connection)
            elif is_over:
                connection.close()
            else:
                connection.reset()

    @property
    def _is_inline(self) -> bool:
        """The whole request is sent before its answer is read."""
        return self.asked.rest is None and len(self.asked.body) <= _INLINE_BYTES

    def _beginning(self, server: Server) -> tuple[h11.Event, ...]:
        """The request's head, and the rest of it where that is sent at once."""
        asked, address = self.asked, server.address
        method = asked.method.encode()
        target = address.prefix.encode() + asked.scope["raw_path"]
        if asked.scope["query_string"]:
            target += b"?" + asked.scope["query_string"]
        headers = [(b"host", address.authority.encode()), *asked.headers(method, target)]
        if asked.length is None:
            headers.append((b"transfer-encoding", b"chunked"))
        elif asked.length or asked.method in ("POST", "PUT", "PATCH"):
            headers.append((b"content-length", b"%d" % asked.length))
        head = h11.Request(method=method, target=target, headers=headers)
        if not self._is_inline:
            return (head,)
        return (head, *((h11.Data(data=asked.body),) if asked.body else ()), h11.EndOfMessage())

    async def _send_body(
        self,
        connection: ServerConnection,
        nursery: trio.Nursery,
        follow_client: Callable[[], Awaitable[None]],
    ) -> None:
        """Send a long body while its answer is read."""
        asked = self.asked
        try:
            await connection.send(h11.Data(data=asked.body))
            if asked.rest is not None:
                async for chunk in asked.rest:
                    if chunk:
                        await connection.send(h11.Data(data=chunk))
            await connection.send(h11.EndOfMessage())
        except ServerGoneError:
            return  # its answer, or its end, says what there is to say
        except (SensoriumError, ClientDisconnect, h11.LocalProtocolError) as error:
            self.body_error = error
            connection.close()
            return
        if asked.rest is not None:
            nursery.start_soon(follow_client)

    async def _take_answer(self, server: Server, route: Route, connection: ServerConnection) -> _Outcome:
        """Relay the answer, or hold it back where another server may be asked. Raises ServerGoneError."""
        began = trio.current_time()
        head = await connection.head()
        server.first_byte.observe(trio.current_time() - began)
        if head.status_code in _FULL and self.asked.rest is None:
            await self._keep_refusal(server, connection, head)
            return "full"
        await self._relay(server, route, connection, head)
        return "done"

    async def _keep_refusal(self, server: Server, connection: ServerConnection, head: h11.Response) -> None:
        """Hold back the answer of a server that is full."""
        body = await connection.body(_MAX_REFUSAL_BYTES)
        self.refusal = _Refusal(head.status_code, _fields(head), body)
        after = next((value for name, value in head.headers if name == b"retry-after"), b"")
        if head.status_code == 503 and after.isdigit():
            server.refused(float(after[:6]))

    async def _relay(
        self, server: Server, route: Route, connection: ServerConnection, head: h11.Response
    ) -> None:
        """Pass the answer on. Raises ServerGoneError."""
        fields = _fields(head)
        kind = next((value for name, value in fields if name == b"content-type"), b"")
        self.is_events = kind.startswith(b"text/event-stream")
        if 200 <= head.status_code < 300:
            route.answered(server)
        learns = self.asked.method == "POST" and head.status_code < 300
        event = await connection.next_event() if learns else None
        if isinstance(event, h11.Data):
            self._learn(server, bytes(event.data[:_MAX_HINT_BYTES]))
        await self._start(head.status_code, fields, server)
        if event is None:
            event = await connection.next_event()
        while isinstance(event, h11.Data):
            data, event = bytes(event.data), connection.event_at_hand()
            if isinstance(event, h11.EndOfMessage):
                await self._end(data)
                return
            await self.send({"type": "http.response.body", "body": data, "more_body": True})
            event = event if isinstance(event, h11.Data) else await connection.next_event()
        await self._end(b"")

    async def _end(self, data: bytes) -> None:
        """Send the last part of the answer."""
        self.is_ending = True
        await self.send({"type": "http.response.body", "body": data, "more_body": False})

    def _learn(self, server: Server, beginning: bytes) -> None:
        """What the server has made."""
        path, affinity = self.asked.path, self.state.affinity
        if (made := id_made(beginning)) is not None:
            affinity.made(made, server.name)
        if _MAKES_SECRETS.fullmatch(path):
            for value in _SECRET_VALUE.findall(beginning):
                affinity.made(secret_name(value.decode()), server.name)
                self.state.identity.made_secret(value.decode(), self.client)

    async def _start(self, status: int, fields: Headers, server: Server | None) -> None:
        self.has_begun = True
        name = self.tried[-1].name if server is None and self.tried else server.name if server else ""
        self.state.metrics.requests.labels(name, str(status)).inc()
        await self.send({"type": "http.response.start", "status": status, "headers": fields})

    async def _break_off(self, server: Server) -> None:
        """The answer ends midway: a stream of events by an error, another one by the connection's end."""
        self.state.metrics.broken.labels(server.name).inc()
        logger.warning("%s broke off an answer of %s", server.name, self.asked.path)
        if self.is_events:
            error = UnavailableError("The server was lost before its answer was whole.", code="server_lost")
            body = b"\n\n" + error_shape(self.asked.scope).event(error) + DONE
            await self._end(body)

    async def _search(self, route: Route) -> None:
        """Ask all servers who has what the request names."""
        name = self.hints.ids[0]
        collection = _COLLECTION_OF.get(re.split("[_-]", name)[0])
        if collection is None:
            return
        target = f"/v1/{collection}/{name}".encode()

        async def ask(server: Server) -> None:
            try:
                connection = await server.connections.take(is_fresh=True)
                try:
                    path = server.address.prefix.encode() + target
                    headers = [
                        (b"host", server.address.authority.encode()),
                        *self.asked.headers(b"GET", path),
                    ]
                    headers = [each for each in headers if each[0] != b"content-type"]
                    await connection.send(
                        h11.Request(method="GET", target=path, headers=headers), h11.EndOfMessage()
                    )
                    if (await connection.head()).status_code == 200:
                        route.found(server)
                        self.state.affinity.made(name, server.name)
                        asking.cancel_scope.cancel()
                finally:
                    connection.close()
            except (ServerGoneError, h11.LocalProtocolError):
                return

        with trio.move_on_after(_SEARCH_S):
            async with open_work() as asking:
                for server in route.candidates():
                    if server.health.takes_work:
                        asking.start_soon(ask, server)


def _fields(head: h11.Response) -> Headers:
    return to_client((bytes(name), bytes(value)) for name, value in head.headers)
