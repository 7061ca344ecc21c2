"""Listens, and serves every connection in a task of its own: one that fails, stalls or floods costs itself.

`actors/server.py` calls `serve_connections`; the application above knows nothing of this. Read next:
`actors/transport/connection_limits.py` for how many there may be, `actors/transport/http11.py` for what is
spoken on one.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

from ..callers import caller_by_address
from ..runtime.panic_guard import contained
from .asgi_scope import Address
from .connection_limits import Guard, Seat
from .http11 import HttpConnection
from .refusals import Refusals
from .tcp_stream import Wire
from .trusted_proxies import TrustedProxies
from .websocket import AsgiApp

logger = logging.getLogger(__name__)

_BACKLOG: Final = 1024
_VANISHED_S: Final = 30.0
"""How long the peer's machine may leave what we sent without an acknowledgement, be it a ping: then it is
gone, or the way to it. Else the kernel would try for a quarter of an hour."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_RETRY_S: Final = 0.1
_ACCEPTED_AT_ONCE: Final = 16
_PAUSE_S: Final = 0.004
"""Between two looks at who came. In a storm of connections that are closed at once, most have gone by then,
and one that gets no task costs less than half; nobody else notices."""
_WARN_EVERY_S: Final = 30.0
_UNSENT_BYTES: Final = 16 * 1024
"""Kept in the kernel for one connection; more would only be further from what is true now."""


def open_listener(host: str, port: int, *, send_timeout_s: float = 0.0) -> socket.socket:
    """A listening TCP socket; `OSError` if the address is taken or not ours.

    Its options are also those of its connections. Those are broken when the peer vanishes, but not before the
    `send_timeout_s` that it has to read what we send.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":
            limit_ms = min(round(1000 * max(_VANISHED_S, send_timeout_s)), 2**31 - 1)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


async def serve_connections(
    app: AsgiApp,
    listener: socket.socket,
    *,
    guard: Guard,
    max_message_bytes: int,
    send_timeout_s: float,
    stop: trio.Event,
    grace_s: float,
    refusals: Refusals | None = None,
    proxies: TrustedProxies | None = None,
) -> None:
    """Serve HTTP/1.1 and WebSockets until `stop`; then connections have `grace_s` to end.

    Takes over `listener`. Cancelling closes every connection at once.
    """
    with listener:
        server: Address = listener.getsockname()[:2]
        entrance = _Entrance(
            app,
            guard,
            server,
            max_message_bytes,
            send_timeout_s,
            refusals or Refusals(),
            proxies or TrustedProxies(),
        )
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                accepting.start_soon(entrance.accept, listener, connections)
                await stop.wait()
                accepting.cancel_scope.cancel()
            listener.close()
            guard.close()
            connections.cancel_scope.deadline = trio.current_time() + grace_s


@dataclass(slots=True)
class _Entrance:
    """Takes connections in."""

    app: AsgiApp
    guard: Guard
    server: Address
    max_message_bytes: int
    send_timeout_s: float
    refusals: Refusals
    proxies: TrustedProxies
    warn_at: float = 0.0

    async def accept(self, listener: socket.socket, nursery: trio.Nursery) -> None:
        """Accept until cancelled. Several between what others do, or a crowd would keep everybody waiting."""
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                for _ in range(_ACCEPTED_AT_ONCE):
                    self._admit(*listener.accept(), nursery)
            except BlockingIOError:
                await trio.sleep(_PAUSE_S)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._warn(error)
                    self.guard.make_room()
                    await trio.sleep(_RETRY_S)  # otherwise it had gone before it was taken in

    def _admit(self, connected: socket.socket, peer: tuple[Any, ...], nursery: trio.Nursery) -> None:
        connected.setblocking(False)
        first = _first_byte(connected)
        if first == b"":
            self.guard.statistics.num_left += 1
            connected.close()
            return
        client = _plain(peer[0]), peer[1]
        seat = self.guard.admit(
            caller_by_address(client[0]).name,
            has_sent=first is not None,
            is_proxy=self.proxies.trusts(client[0]),
        )
        if seat is None:
            connected.close()
            return
        wire = Wire(
            trio.socket.from_stdlib_socket(connected),
            send_timeout_s=self.send_timeout_s,
            unread=partial(self.guard.unread, seat),
        )
        seat.has_arrived = lambda: bool(_first_byte(connected))
        # At once: the next one that is taken in may need its place.
        seat.hang_up = lambda: wire.reset() if seat.waits == "unread" else wire.close()
        nursery.start_soon(self._serve, wire, client, seat)

    async def _serve(self, wire: Wire, client: Address, seat: Seat) -> None:
        connection = HttpConnection(
            self.app,
            wire,
            self.guard,
            seat,
            client,
            self.server,
            self.max_message_bytes,
            self.refusals,
            self.proxies,
        )
        try:
            with contained:
                await connection.run()
        except Exception:
            logger.exception("a connection failed; it was closed, the others go on")
        finally:
            wire.close()
            self.guard.leave(seat)

    def _warn(self, error: OSError) -> None:
        if trio.current_time() >= self.warn_at:
            self.warn_at = trio.current_time() + _WARN_EVERY_S
            logger.warning("no connection can be taken in (%s): idle ones are closed", error.strerror)


def _first_byte(connected: socket.socket) -> bytes | None:
    """What has arrived, if anything; empty where the peer closed without a word, as what only asks whether
    anything listens does."""
    try:
        return connected.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _plain(address: str) -> str:
    """An IPv4 client is called so also where one socket listens to both kinds (`::`)."""
    mapped = ipaddress.IPv6Address(address).ipv4_mapped if ":" in address else None
    return str(mapped or address)
