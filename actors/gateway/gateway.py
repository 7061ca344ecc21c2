"""Composes a gateway and runs it: ask the servers, listen, and on a stop signal drain and leave.

Everything is made here and handed down. Read `actors/gateway/app.py` for what clients see.
"""

from __future__ import annotations

import errno
import logging
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

import trio

from ..config.gateway import GatewayConfig
from ..config.network import ListenConfig
from ..errors import AddressError
from ..http.access_log import AccessLog, RefusalLog
from ..http.api_keys import ApiKeys
from ..http.origins import Origins
from ..telemetry.collectors import CONNECTIONS, Statistics
from ..telemetry.logs import LogConfig
from ..transport.connection_limits import ConnectionLimits, Guard, connection_limits
from ..transport.listener import open_listener, serve_connections
from ..transport.refusals import Refusals
from ..transport.trusted_proxies import TrustedProxies
from .app import GatewayApp
from .identity import Identity
from .metrics import GatewayMetrics
from .probes import Prober
from .servers import Servers
from .state import GatewayState

logger = logging.getLogger(__name__)

_CLOSE_GRACE_S: Final = 1.0
_RESERVE: Final = 64
"""Descriptors for probes, kept connections and files."""
_OF_PROBES: Final = ConnectionLimits(max_connections=16, max_per_address=16, idle_s=5.0)
"""At the port for nothing but probes."""


async def serve_gateway(
    config: GatewayConfig,
    listen: ListenConfig,
    logs: LogConfig,
    *,
    stop: trio.Event,
    on_ready: Callable[[str], None] = lambda _: None,
    task_status: trio.TaskStatus[GatewayState] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Relay until `stop` is set, then drain and return.

    `on_ready` gets the base URL once every server has been asked how it is. Raises ConfigError and
    AddressError before that. Cancelling ends everything at once.
    """
    keys, metrics = ApiKeys(listen), GatewayMetrics()
    state = GatewayState(
        config, Identity(listen, keys, config.server_api_key), metrics, Servers(config, metrics)
    )
    app = GatewayApp(state, Origins(listen))
    with ExitStack() as opened:
        opened.callback(state.servers.close)
        listener = opened.enter_context(_listen(listen, listen.port, "--port"))
        probed = (
            opened.enter_context(_listen(listen, listen.health_port, "--health-port"))
            if listen.health_port
            else None
        )
        host, port = listener.getsockname()[:2]
        guard, refusals = Guard(_limits(listen)), Refusals(RefusalLog(logs))
        metrics.registry.register(Statistics(CONNECTIONS, [], lambda: [([], guard.statistics)]))
        closed = trio.Event()
        serving = partial(
            serve_connections,
            max_message_bytes=config.max_message_bytes,
            send_timeout_s=listen.send_timeout_s,
            stop=closed,
            grace_s=_CLOSE_GRACE_S,
            refusals=refusals,
            proxies=TrustedProxies(listen.proxy_networks, listen.caller_secret),
        )
        async with trio.open_nursery() as tasks:
            await tasks.start(Prober(state, config.server_api_key).run)
            tasks.start_soon(keys.watch)
            async with trio.open_nursery() as connections:
                connections.start_soon(partial(serving, AccessLog(app, logs), listener, guard=guard))
                if probed is not None:
                    few = Guard(_OF_PROBES)
                    connections.start_soon(partial(serving, AccessLog(app.probed, logs), probed, guard=few))
                task_status.started(state)
                on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
                await stop.wait()
                logger.info(
                    "stopping: %d WebSockets, %d requests", state.sessions.total(), state.requests.total()
                )
                app.drain()
                with trio.move_on_after(listen.drain_s):
                    await state.wait_quiet()
                closed.set()
            tasks.cancel_scope.cancel()


def _listen(listen: ListenConfig, port: int, option: str) -> socket.socket:
    try:
        return open_listener(listen.host, port, send_timeout_s=listen.send_timeout_s)
    except OSError as error:
        hint = f"; choose another {option}" if error.errno == errno.EADDRINUSE else ""
        raise AddressError(
            f"cannot listen on {listen.host}:{port}: {error.strerror or error}{hint}"
        ) from error


def _limits(listen: ListenConfig) -> ConnectionLimits:
    """Each connection of a client may need another one to a server."""
    limits = connection_limits(
        listen.max_connections, listen.max_connections_per_address, idle_s=listen.keep_alive_s
    )
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = limits.max_connections
    if descriptors != resource.RLIM_INFINITY:
        most = max(8, min(most, (descriptors - _RESERVE) // 2))
    return ConnectionLimits(most, min(limits.max_per_address, most), limits.idle_s)
