"""One HTTP/1.1 connection, request by request: h11 keeps the protocol, an ASGI application answers.

HTTP/2 is not spoken: with it every frame costs, of whichever stream or of none, and a proxy that ends TLS in
front speaks it better. Read next: `actors/transport/http_exchange.py` for one request,
`actors/transport/websocket.py` for what follows an upgrade, `actors/transport/listener.py` for where
connections come from.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

import h11
import trio

from ...protocols.errors import (
    BadRequestError,
    ClientError,
    InternalError,
    OverloadedError,
    RequestTimeoutError,
    SensoriumError,
)
from ..runtime.panic_guard import contained
from ..telemetry.logs import request_id_of
from .asgi_scope import Address, body_length, is_upgrade, scope_of
from .connection_limits import KEY_SHOWN, Guard, Seat
from .http_exchange import BODY_FAULT, Exchange, Link, h11_reason
from .refusals import Refusal, Refusals
from .tcp_stream import Wire
from .trusted_proxies import CALLER, ProxyProtocolError, TrustedProxies, read_preamble
from .websocket import AsgiApp, WebSocketConnection, handshake

logger = logging.getLogger(__name__)

_HEAD_S: Final = 10.0
"""From the first byte of a request to the end of its head."""
_SPARE_HEAD_S: Final = 2.0
_SILENCE_S: Final = 5.0
_LINGER_S: Final = 30.0
"""How long a client may go on sending a body that is not wanted, and pause in it."""
_OPEN_PATHS: Final = frozenset({b"/health", b"/live", b"/ping"})
"""Answered also where there is no room for anything else."""


class VersionError(ClientError):
    """Another version of HTTP."""

    status = 505
    default_code = "http_version_not_supported"


@dataclass(slots=True)
class HttpConnection:
    """Serves `app` to one client, or to those of a proxy."""

    app: AsgiApp
    wire: Wire
    guard: Guard
    seat: Seat
    peer: Address
    server: Address
    max_message_bytes: int
    refusals: Refusals
    proxies: TrustedProxies
    _named: Address | None = None
    """Whom the connection's PROXY header names."""

    async def run(self) -> None:
        """Answer requests until either side has enough, then close."""
        link = Link(self.wire, self.guard.large_bodies)
        try:
            if self.proxies.trusts(self.peer[0]):
                self._named = await read_preamble(self.wire)
            while (request := await self._next_request(link)) is not None:
                if not await self._answer(link, request):
                    break
            if self.seat.is_held and not self.wire.has_ended:
                self.guard.idle(self.seat, is_lingering=True)
                await self.wire.finish(silence_s=_SILENCE_S, total_s=_LINGER_S)
        except trio.BrokenResourceError:
            pass
        except ProxyProtocolError as error:
            await self._refuse(link, error)
        finally:
            self.guard.busy(self.seat)
            self.wire.close()

    async def _next_request(self, link: Link) -> h11.Request | None:
        """The head of the next request; None if there is none, or none that could be answered."""
        has_begun = bool(link.h11.trailing_data[0])
        if self.seat.waits != "head" or self.guard.is_closing:  # it may wait since its admission
            self.guard.idle(self.seat)
        wait_s = _SPARE_HEAD_S if self.seat.is_spare else self.guard.limits.idle_s
        try:
            with trio.move_on_after(wait_s) as waiting:
                while (event := link.h11.next_event()) is h11.NEED_DATA:
                    data = await self.wire.receive()
                    if data and not has_begun:
                        has_begun = True
                        waiting.deadline = min(waiting.deadline, trio.current_time() + _HEAD_S)
                        self.guard.begin(self.seat)
                    link.h11.receive_data(data)
                self.seat.has_requested = True
                return event if isinstance(event, h11.Request) else None
        except h11.RemoteProtocolError as error:
            message = f"The request is not HTTP/1.1: {h11_reason(error)}."
            await self._refuse(link, BadRequestError(message), error.error_status_hint)
        finally:
            self.guard.busy(self.seat)
        if has_begun:
            await self._refuse(link, RequestTimeoutError("The head of the request arrives too slowly."))
        return None

    async def _refuse(self, link: Link, error: SensoriumError, status: int | None = None) -> None:
        """Answer what is no request. Sends nothing where an answer has been sent already."""
        if link.h11.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            unknown = h11.Request(method=b"GET", target=b"*", headers=[(b"host", b"")])
            request_id = request_id_of(None)
            self.refusals.note(Refusal(status or error.status, error.code, request_id, self.peer))
            await Exchange(link, unknown, is_last=True).refuse(error, status, request_id=request_id)

    async def _turn_away(
        self, request: h11.Request, exchange: Exchange, error: SensoriumError, *more: tuple[bytes, bytes]
    ) -> None:
        """Answer a request that the application is not shown."""
        scope = scope_of(request, client=self.peer, server=self.server)
        given = next((value for name, value in request.headers if name == b"x-request-id"), b"")
        request_id = request_id_of(given.decode("latin-1"))
        method, path = request.method.decode("ascii"), scope["path"]
        self.refusals.note(Refusal(error.status, error.code, request_id, self.peer, method, path))
        await exchange.refuse(error, None, *more, request_id=request_id)

    async def _answer(self, link: Link, request: h11.Request) -> bool:
        """Whether another request may follow."""
        is_foreign = request.http_version > b"1.1"
        has_two_lengths = {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}
        is_last = is_foreign or has_two_lengths or self.seat.is_spare or self.guard.is_closing
        exchange = Exchange(link, request, is_last=is_last)
        path = bytes(request.target).partition(b"?")[0]
        if has_two_lengths:
            # A proxy in front that goes by the length sees other requests in what follows (RFC 9112, 6.1).
            two = BadRequestError("A request has a `Content-Length` or a `Transfer-Encoding`, not both.")
            await self._turn_away(request, exchange, two)
        elif is_foreign:
            wrong = VersionError("Only HTTP/1.1 is supported; for HTTP/2 put a proxy in front.")
            await self._turn_away(request, exchange, wrong)
        elif self.seat.is_spare and path not in _OPEN_PATHS:
            busy = OverloadedError(
                "The server has no room for another connection.", code="too_many_connections"
            )
            await self._turn_away(request, exchange, busy, (b"retry-after", b"1"))
        else:
            try:
                scope = self._scope(request)
            except ClientError as error:
                await self._turn_away(request, exchange, error)
            else:
                if is_upgrade(request):
                    await self._upgrade(link, request, exchange, scope)
                else:
                    await self._run_app(exchange, scope)
        if self.wire.is_broken:
            return False
        self.guard.idle(self.seat, is_lingering=True)
        return await exchange.finish()

    def _scope(self, request: h11.Request) -> dict[str, Any]:
        """Of a request that the application is shown. Raises InvalidCallerError."""
        client = self.proxies.client_of(request, self.peer, self._named)
        scope = scope_of(request, client=client.address, server=self.server)
        scope[KEY_SHOWN] = self._note_key
        if client.caller is not None:
            scope[CALLER] = client.caller
        return scope

    async def _run_app(self, exchange: Exchange, scope: dict[str, Any]) -> None:
        scope[BODY_FAULT] = exchange.body_fault
        try:
            with contained:
                await self.app(scope, exchange.receive, exchange.send)
        except Exception:
            logger.exception("a request failed; its connection is closed, the others go on")
        if exchange.is_complete or self.wire.is_broken:
            return
        if exchange.status:  # broken off: what has been sent must not look whole
            self.wire.reset()
        elif (fault := exchange.body_fault()) is not None:
            await exchange.refuse(fault)
        else:
            await exchange.refuse(InternalError("The server failed on this request."))

    async def _upgrade(
        self, link: Link, request: h11.Request, exchange: Exchange, scope: dict[str, Any]
    ) -> None:
        try:
            response = handshake(request)
            if body_length(request) != 0:
                raise BadRequestError("A request that opens a WebSocket has no body.")
        except ClientError as error:
            upgrade = [(b"upgrade", b"websocket"), (b"sec-websocket-version", b"13")]
            await self._turn_away(request, exchange, error, *(upgrade if error.status == 426 else ()))
            return
        await link.next_event()  # the end of the request, so that what follows is the WebSocket's
        read_ahead, _ = link.h11.trailing_data
        socket = WebSocketConnection(
            self.wire,
            exchange,
            response,
            read_ahead,
            max_message_bytes=self.max_message_bytes,
            turns=self.guard.websocket_turns,
        )
        await socket.run(self.app, scope, self.guard.statistics)
        if not (exchange.is_complete or self.wire.is_broken):
            await exchange.refuse(InternalError("The server failed on this request."))

    def _note_key(self) -> None:
        """An accepted key was shown: others make room before this connection does."""
        self.seat.has_key = True
