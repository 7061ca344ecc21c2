"""Engines that listen: `sensorium engine` loads models, and answers every server that knows its secret.

Each connection has its own `EngineServer` over the same engines; what a server holds is given back when its
connection ends. Read `client.py` for the other end, `actors/engine_process/child.py` for the process of one
server.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Final

import trio

from ..config.validation import HostPort
from ..engine_process import messages
from ..engine_process.child import SWITCH_INTERVAL_S, Open, OpenedT, open_all
from ..engine_process.server import EngineServer
from ..inference.engine import Engine
from ..transport.listener import open_listener
from ..worker_config import Orders
from .entrance import Entrance, accept_all

_SEND_TIMEOUT_S: Final = 10.0
_CHECK_INTERVAL_S: Final = 0.1


class NodeServer:
    """Answers for engines that run, at one address."""

    def __init__(
        self, engines: Sequence[Engine], hello: messages.Opened, contents: Sequence[bytes], entrance: Entrance
    ) -> None:
        self._engines = engines
        self._hello = hello
        self._contents = contents
        self._entrance = entrance
        self.is_draining = False

    async def serve(self, tcp: trio.SocketStream) -> None:
        """One connection, to its end."""
        async with self._entrance.admitted(tcp) as stream:
            if stream is not None:
                server = EngineServer(self._engines, stream, is_draining=lambda: self.is_draining)
                await server.run(self._hello, self._contents)

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
            node = NodeServer(engines, hello, contents, Entrance(secret, tls))
            sockets = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
            nursery.start_soon(accept_all, sockets, node.serve)
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
