"""`sensorium gateway` from its options on: runs the gateway until a signal; what was wrong is one line."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

import trio

from ...client.terminal import fail
from ..config.gateway import GatewayConfig
from ..config.network import ListenConfig
from ..errors import AddressError, ConfigError
from ..runtime.nursery import first_error
from ..telemetry.logs import LogConfig, flush, print_line
from .gateway import serve_gateway


def run_gateway(
    config: GatewayConfig,
    listen: ListenConfig,
    logs: LogConfig,
    watch_signals: Callable[..., Awaitable[object]],
) -> int:
    """Relay until a signal; the exit code."""

    async def run() -> None:
        ready, stop = trio.Event(), trio.Event()

        def announce(url: str) -> None:
            gc.collect()
            gc.freeze()
            print_line(f"listening on {url}")
            ready.set()

        async with trio.open_nursery() as nursery:
            await nursery.start(watch_signals, ready, stop, nursery.cancel_scope)
            await serve_gateway(config, listen, logs, stop=stop, on_ready=announce)
            nursery.cancel_scope.cancel()

    try:
        trio.run(run)
    except BaseExceptionGroup as group:
        error = first_error(group)
        if not isinstance(error, AddressError | ConfigError):
            raise
        flush()
        fail(error)
        return 1
    return 0
