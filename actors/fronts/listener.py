"""Where other fronts relay requests to this one: the same application, for callers that they have admitted.

Who connects proves that it knows the cluster's secret, and then speaks HTTP/1.1 as any client does, with
WebSockets. Who the caller is, the front that relays has signed. `RELAYED` in a request's scope says that it
came so, and for what: it is not relayed again. Read `fronts.py` for who connects.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import trio

from ..config.validation import HostPort
from ..errors import AddressError
from ..nodes.entrance import Entrance, accept_all
from ..transport.connection_limits import ConnectionLimits, Guard
from ..transport.http11 import HttpConnection
from ..transport.listener import open_listener
from ..transport.refusals import Refusals
from ..transport.tcp_stream import Wire
from ..transport.trusted_proxies import TrustedProxies
from ..transport.websocket import AsgiApp

RelayedFor = Literal["id", "key"]
"""What another front has relayed a request for: what an id names, or an ephemeral key. The latter may be
relayed once more, for a session that is resumed with the key; so there is no loop."""
RELAYED: Final = "sensorium.relayed"
"""In a scope: a `RelayedFor`."""
HEADER: Final = b"sensorium-relayed"
"""The same in a request; believed here only."""
_EVERYBODY: Final = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
_LAST_BYTES_S: Final = 2.0
_COPIED_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class FrontListener:
    """At one address. `open`, then `run`."""

    app: AsgiApp
    entrance: Entrance
    proxies: TrustedProxies
    limits: ConnectionLimits
    max_message_bytes: int
    send_timeout_s: float
    refusals: Refusals = field(default_factory=Refusals)
    _listener: trio.SocketListener | None = None
    _address: tuple[str, int] = ("", 0)

    def open(self, address: HostPort) -> int:
        """Listen; the port. Raises AddressError."""
        try:
            listening = open_listener(address.host, address.port, send_timeout_s=self.send_timeout_s)
        except OSError as error:
            raise AddressError(
                f"cannot listen on {address} for other fronts: {error.strerror or error}; give --front-listen"
            ) from error
        self._address = listening.getsockname()[:2]
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        return self._address[1]

    async def run(self) -> None:
        """Serve until cancelled."""
        assert self._listener is not None, "opened before"
        guard = Guard(self.limits)
        async with self._listener:

            async def serve(tcp: trio.SocketStream) -> None:
                async with self.entrance.admitted(tcp) as stream:
                    if isinstance(stream, trio.SSLStream):
                        async with _decrypted(stream) as plain:
                            await self._serve(plain, tcp, guard)
                    elif stream is not None:
                        await self._serve(tcp.socket, tcp, guard)

            await accept_all(self._listener, serve)

    async def _serve(self, connected: trio.socket.SocketType, tcp: trio.SocketStream, guard: Guard) -> None:
        peer = tcp.socket.getpeername()[:2]
        seat = guard.admit(peer[0], has_sent=True, is_proxy=True)
        if seat is None:
            return
        wire = Wire(connected, send_timeout_s=self.send_timeout_s)
        seat.hang_up = wire.close
        connection = HttpConnection(
            self._marked,
            wire,
            guard,
            seat,
            peer,
            self._address,
            self.max_message_bytes,
            self.refusals,
            self.proxies,
        )
        try:
            await connection.run()
        finally:
            wire.close()
            guard.leave(seat)

    async def _marked(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        said = next((value for name, value in scope["headers"] if name == HEADER), b"").decode("latin-1")
        scope[RELAYED] = said if said in get_args(RelayedFor) else "id"
        await self.app(scope, receive, send)


def proxies_of(caller_secret: str) -> TrustedProxies:
    """What is believed of those who have proved that they are fronts: whom they have signed for."""
    return TrustedProxies(_EVERYBODY, caller_secret)


@asynccontextmanager
async def _decrypted(stream: trio.SSLStream[trio.SocketStream]) -> AsyncIterator[trio.socket.SocketType]:
    """A socket with what TLS carries: connections are served on sockets, whose state the kernel tells."""
    inner, outer = trio.socket.socketpair()
    is_sent = trio.Event()

    async def copy_in() -> None:
        try:
            while data := await stream.receive_some(_COPIED_BYTES):
                await _send_all(inner, bytes(data))
            inner.shutdown(trio.socket.SHUT_WR)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            inner.close()  # it has left

    async def copy_out() -> None:
        try:
            while data := await inner.recv(_COPIED_BYTES):
                await stream.send_all(data)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            inner.close()
        is_sent.set()

    with inner, outer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy_in)
            nursery.start_soon(copy_out)
            yield outer
            outer.close()
            with trio.move_on_after(_LAST_BYTES_S):
                await is_sent.wait()
            nursery.cancel_scope.cancel()


async def _send_all(connected: trio.socket.SocketType, data: bytes) -> None:
    while data:
        data = data[await connected.send(data) :]
