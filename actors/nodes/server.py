"""Engines that listen: `sensorium engine` loads models, and answers every server that knows its secret.

Each connection has its own `EngineServer` over the same engines; what a server holds is given back when its
connection ends. Read `client.py` for the other end, `actors/engine_process/child.py` for the process of one
server.
"""

from __future__ import annotations

import logging
import math
import ssl
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from ..config.validation import HostPort
from ..engine_process import messages
from ..engine_process.child import SWITCH_INTERVAL_S, Open, OpenedT, open_all
from ..engine_process.server import EngineServer
from ..inference.engine import Engine
from ..runtime.panic_guard import contained
from ..transport.listener import open_listener
from ..worker_config import Orders
from .handshake import HANDSHAKE_S, HandshakeError, let_in

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 16
"""Connections that have not proved who they are; more are closed at once."""
MAX_SERVERS: Final = 256
_SEND_TIMEOUT_S: Final = 10.0
_CHECK_INTERVAL_S: Final = 0.1


class NodeServer:
    """Answers for engines that run, at one address."""

    def __init__(
        self,
        engines: Sequence[Engine],
        hello: messages.Opened,
        contents: Sequence[bytes],
        secret: bytes,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._engines = engines
        self._hello = hello
        self._contents = contents
        self._secret = secret
        self._tls = tls
        self._num_pending = self._num_servers = 0
        self._num_refused, self._reported_at = 0, -math.inf
        self.is_draining = False

    async def serve(self, tcp: trio.SocketStream) -> None:
        """One connection, to its end."""
        peer = ":".join(map(str, tcp.socket.getpeername()[:2]))
        if self._num_pending >= MAX_PENDING or self._num_servers >= MAX_SERVERS:
            await trio.aclose_forcefully(tcp)
            return
        stream: trio.abc.Stream = (
            tcp if self._tls is None else trio.SSLStream(tcp, self._tls, server_side=True)
        )
        self._num_pending += 1
        try:
            with trio.fail_after(HANDSHAKE_S):
                await let_in(stream, self._secret)
        except (trio.TooSlowError, trio.BrokenResourceError, HandshakeError, ssl.SSLError, OSError) as error:
            self._report_refused(peer, str(error) or "it did not say who it is in time")
            await trio.aclose_forcefully(stream)
            return
        finally:
            self._num_pending -= 1
        logger.info("%s is served", peer)
        self._num_servers += 1
        try:
            server = EngineServer(self._engines, stream, is_draining=lambda: self.is_draining)
            await server.run(self._hello, self._contents)
        finally:
            self._num_servers -= 1
            await trio.aclose_forcefully(stream)
            logger.info("%s has left", peer)

    def _report_refused(self, peer: str, why: str) -> None:
        """In the log, once a second at most: a storm of them is to fill no disk."""
        self._num_refused += 1
        if trio.current_time() < self._reported_at + 1.0:
            return
        more = f" ({self._num_refused - 1} more before it)" if self._num_refused > 1 else ""
        logger.warning("%s was not let in: %s%s", peer, why, more)
        self._reported_at, self._num_refused = trio.current_time(), 0

    def is_idle(self) -> bool:
        """Whether no request runs or waits."""
        return not any(
            statistics.num_running + statistics.num_waiting
            for statistics in (engine.statistics() for engine in self._engines)
        )


async def run_node(
    orders: Orders,
    address: HostPort,
    secret: bytes,
    open_next: Open[OpenedT],
    *,
    stop: trio.Event,
    drain_s: float,
    on_ready: Callable[[str], None] = lambda _: None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Load models, listen, and serve until `stop`; then let requests finish, for `drain_s` at most.

    Raises ModelLoadError, and OSError where the address is taken.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listener = open_listener(address.host, address.port, send_timeout_s=_SEND_TIMEOUT_S)
    try:
        async with trio.open_nursery() as nursery:
            engines, hello, contents = await open_all(orders, open_next, nursery)
            node = NodeServer(engines, hello, contents, secret, tls)
            sockets = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
            nursery.start_soon(partial(trio.serve_listeners, partial(_contained, node), [sockets]))
            host, port = listener.getsockname()[:2]
            on_ready(str(HostPort(host, port)))
            await stop.wait()
            node.is_draining = True
            with trio.move_on_after(drain_s):
                while not node.is_idle():  # noqa: ASYNC110 (of engines)
                    await trio.sleep(_CHECK_INTERVAL_S)
            nursery.cancel_scope.cancel()
    finally:
        listener.close()


async def _contained(node: NodeServer, stream: trio.SocketStream) -> None:
    try:
        with contained:
            await node.serve(stream)
    except* Exception:
        logger.exception("a connection failed")
