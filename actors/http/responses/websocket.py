"""`/v1/responses` as a WebSocket: responses one after another, each told by the events of its stream.

What a client asks for meanwhile waits its turn, so that nothing of two is mixed. A response counts, shares
and is bounded as a posted one is; sockets are bounded by `Service.response_sockets`. What is not to be kept
(`store: false`) can be answered further on this socket, while it is open. Requests and events are
`protocols/responses/websocket.py`; how responses are made is `actors/http/responses/routes.py`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Final

import trio
from msgspec import structs
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from ....protocols.errors import ClientError, SensoriumError, UnavailableError
from ....protocols.query_string import check_body_address
from ....protocols.responses.websocket import (
    ResponseCreate,
    as_messages,
    cancelled_by,
    error_event,
    lane_of,
    parse_create,
    previous_of,
)
from ...callers import Caller
from ...fronts.fronts import Front
from ...runtime.nursery import open_work
from ...runtime.panic_guard import contained
from ..chat.text_requests import is_light, parsed
from ..client_socket import ClientSocket, accepted
from ..error_bodies import shown
from ..event_stream import Put
from ..fronts.sockets import SocketRelay, close_of, closed
from ..service import Service
from .routes import ResponseRoutes
from .shape import ResponseShape

ROUTE: Final = "/v1/responses"
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Of requests that wait for the one before; with more of them nothing is read, and nobody seen to leave."""
_LEAST_BYTES: Final = 64
"""Of a small request: what it takes beside itself."""
_NUM_KEPT: Final = 16
"""The latest responses that are not to be kept, and can be answered further on this socket."""


class _LimitError(ClientError):
    """The socket has been open, or idle, for too long. Clients know the code, and open another one."""

    default_code = "websocket_connection_limit_reached"


def response_sockets(service: Service) -> list[WebSocketRoute]:
    """The route of sockets on which responses are made, if a model makes any."""
    routes = ResponseRoutes(service)

    async def endpoint(websocket: WebSocket) -> None:
        caller = service.caller(websocket)
        check_body_address(websocket.query_params, ROUTE, ("model",))
        if service.is_draining:
            raise UnavailableError("The server is shutting down.", code="draining")
        service.response_sockets.check(caller, is_shared=service.is_shared)
        with service.response_sockets.holding(caller):
            socket, opened_at = await accepted(websocket), trio.current_time()
            first = None
            if service.fronts is not None:
                first = await _first(service, socket)
                front = await _front_of(service, websocket, first)
                if front is not None and first is not None:
                    await _serve_elsewhere(service.socket_relay(front, caller, websocket), first, socket)
                    return
            actor = ResponseSocket(service, routes, websocket, socket, opened_at, first)
            service.on_drain.add(actor.drain)
            try:
                await actor.run()
            finally:
                service.on_drain.discard(actor.drain)

    can_chat = any(model.can_chat for model in service.models.values())
    return [WebSocketRoute(ROUTE, endpoint)] if can_chat else []


async def _first(service: Service, socket: ClientSocket) -> str | bytes | None:
    """The first message; None where the client has left, or says nothing for long."""
    with trio.move_on_after(service.config.realtime.idle_s) as waiting:
        service.on_drain.add(waiting.cancel)
        try:
            return await socket.receive()
        finally:
            service.on_drain.discard(waiting.cancel)
    return None


async def _front_of(service: Service, websocket: WebSocket, first: str | bytes | None) -> Front | None:
    """The server of the cluster that has what the first message goes on from, if another one has it."""
    if first is None:
        return None
    body = first.encode() if isinstance(first, str) else first
    return service.elsewhere(websocket.scope, await parsed(body, previous_of))


async def _serve_elsewhere(relay: SocketRelay, first: str | bytes, socket: ClientSocket) -> None:
    """Relay a WebSocket, whose first message has been read, to its end."""
    try:
        end = await relay.go_on([first], socket, socket.send)
    except UnavailableError as error:
        await socket.send(error_event(error))
        end = close_of(error)
    await closed(socket, end)


class ResponseSocket:
    """One socket. A reader takes in what the client sends; responses are made and told by another task."""

    def __init__(
        self,
        service: Service,
        routes: ResponseRoutes,
        websocket: WebSocket,
        socket: ClientSocket,
        opened_at: float,
        first: str | bytes | None = None,
    ) -> None:
        """`opened_at`: when the client's handshake was answered; `first`: a message read since."""
        self._service = service
        self._routes = routes
        self._websocket = websocket
        self._socket = socket
        self._opened_at = opened_at
        self._waiting: deque[bytes] = deque()
        """Requests as they came: what they say takes more room, and is read when it is their turn."""
        self._num_waiting_bytes = 0
        self._changed = trio.lowlevel.ParkingLot()
        """Something waits, or waits no more, or the server drains."""
        self._is_draining = service.is_draining
        self._making: tuple[ResponseShape, trio.CancelScope] | None = None
        self._stream_id: str | None = None
        self._kept: deque[str] = deque()
        if first is not None:
            self._take(first)

    def drain(self) -> None:
        """Take nothing more; the response that is being made is finished."""
        self._is_draining = True
        self._changed.unpark_all()

    async def run(self) -> None:
        """Serve the socket to its end."""
        try:
            async with open_work() as nursery:
                nursery.start_soon(self._read, nursery.cancel_scope)
                await self._answer_all()
                nursery.cancel_scope.cancel()
        finally:
            while self._kept:
                self._service.responses.leave(self._kept.popleft())

    async def _read(self, scope: trio.CancelScope) -> None:
        """Cancels `scope`, and so what is being made, when the client leaves."""
        while (frame := await self._socket.receive()) is not None:
            self._take(frame)
            while self._num_waiting_bytes > _MAX_WAITING_BYTES:
                await self._changed.park()
        scope.cancel()

    def _take(self, frame: str | bytes) -> None:
        body = frame.encode() if isinstance(frame, str) else frame
        if (response_id := cancelled_by(body)) is not None:
            self._cancel(response_id)
            return
        self._waiting.append(body)
        self._num_waiting_bytes += _LEAST_BYTES + len(body)
        self._changed.unpark_all()

    def _cancel(self, response_id: str) -> None:
        """One that is over already, or that nobody knows, needs no answer: its last event is on its way."""
        if self._making is not None and self._making[0].response.id == response_id:
            self._making[1].cancel()

    async def _answer_all(self) -> None:
        limits = self._service.config.realtime
        ends_at, idle_since = self._opened_at + limits.max_session_s, self._opened_at
        while (body := await self._next(min(ends_at, idle_since + limits.idle_s))) is not None:
            put, received = trio.open_memory_channel[bytes](math.inf)  # the longest answer, at most
            with put, received:
                async with open_work() as nursery:
                    nursery.start_soon(self._make, body, put)
                    async for frames in received:
                        for message in as_messages(frames, self._stream_id):
                            await self._socket.send(message)
            idle_since = trio.current_time()
        if self._is_draining:
            await self._socket.close(1001, "The server is shutting down.")
            return
        limit = "idle" if trio.current_time() < ends_at else "open"
        most_s = limits.idle_s if limit == "idle" else limits.max_session_s
        error = _LimitError(f"The WebSocket was {limit} for {most_s:g} s; open another one to continue.")
        await self._socket.send(error_event(error))
        await self._socket.close(1000, error.message)

    async def _next(self, deadline: float) -> bytes | None:
        """What comes next; None where nothing more is to be done."""
        with trio.move_on_at(deadline):
            while not self._waiting and not self._is_draining:
                await self._changed.park()
        if self._is_draining or not self._waiting:
            return None
        found = self._waiting.popleft()
        self._num_waiting_bytes -= _LEAST_BYTES + len(found)
        self._changed.unpark_all()
        return found

    async def _make(self, body: bytes, events: trio.MemorySendChannel[bytes]) -> None:
        """Make a response; closes `events` behind its last."""
        began, status = trio.current_time(), 499
        try:
            status = await self._made(body, events.send_nowait)
        finally:
            metrics = self._service.metrics
            metrics.requests.labels(ROUTE, str(status)).inc()
            metrics.request_duration.labels(ROUTE).observe(trio.current_time() - began)
            events.close()

    async def _made(self, body: bytes, put: Put) -> int:
        """Make a response, and put its events. The status that it would have been answered with."""
        service, self._stream_id = self._service, None
        try:
            caller = service.caller(self._websocket)  # its key may be accepted no more
            hold = service.admission(caller, is_light=is_light(len(body)))
            with contained, hold(), service.answering() as in_time:
                await self._answer(await self._read_create(body), caller, put)
            if not in_time.cancelled_caught:
                return 200
            ended: SensoriumError = UnavailableError("The server is shutting down.", code="draining")
        except Exception as error:
            ended = shown(error, "a response on a WebSocket")
        finally:
            making, self._making = self._making, None
        shape = None if making is None else making[0]
        last = None if shape is None or shape.is_over else shape.fail(ended)
        put(last or f"data: {error_event(ended)}\n".encode())
        return ended.status if last is None else 200

    async def _read_create(self, body: bytes) -> ResponseCreate:
        try:
            create = await parsed(body, parse_create)
        except SensoriumError:
            self._stream_id = await parsed(body, lane_of)
            raise
        self._stream_id = create.stream_id
        return create

    async def _answer(self, create: ResponseCreate, caller: Caller, put: Put) -> None:
        """Raises SensoriumError before the first event."""
        payload = create.checked
        if not payload.request.model:  # the address may name the model of all that name none
            model = self._websocket.query_params.get("model")
            payload = replace(payload, request=structs.replace(payload.request, model=model))
        payload = await self._routes.with_items(payload, caller, self)
        begin = partial(self._routes.begin, within=self, is_warm_up=create.is_warm_up)
        answering, shape = await begin(payload, caller)
        if not payload.request.is_kept:
            self._remember(shape.response.id)
        with trio.CancelScope() as scope:
            self._making = shape, scope
            await answering.stream_or_fail(put)
        if scope.cancelled_caught and not shape.is_over:
            put(shape.cancel())
        await shape.settle()

    def _remember(self, response_id: str) -> None:
        if len(self._kept) == _NUM_KEPT:
            self._service.responses.leave(self._kept.popleft())
        self._kept.append(response_id)
