"""`sensorium gateway`: relays to several servers."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Annotated, Final

import trio
from cyclopts import Parameter

from ...client.terminal import fail
from ..command_options import DEFAULTS, FLAT
from ..config.gateway import GatewayConfig
from ..config.server import ListenConfig
from ..errors import AddressError, ConfigError
from ..importing import importing
from ..runtime.nursery import first_error
from ..runtime.stop_signals import watch_signals
from ..signals import LeavingAtOnce
from ..telemetry.logs import LogConfig, configure, flush, print_line

GATEWAY: Final = GatewayConfig()


def gateway(
    servers: Annotated[
        tuple[str, ...],
        Parameter(help="Addresses of servers, as http://10.0.0.5:8000 or https://api.example.com/v1."),
    ] = (),
    *,
    behind: Annotated[GatewayConfig, FLAT] = GATEWAY,
    listen: Annotated[ListenConfig, FLAT] = DEFAULTS.listen,
    logs: Annotated[LogConfig, FLAT] = DEFAULTS.logs,
) -> int:
    """Relay requests and live sessions to several servers of OpenAI's API, ours or others.

    Prints `listening on http://HOST:PORT` when ready; stops on Ctrl-C. Every option is also an environment
    variable (`--server-api-key` is SENSORIUM_SERVER_API_KEY) and a key of the file given by --config.
    A client names a model, and gets a server that has it; what belongs to a conversation or a session goes to
    the server that has that. A server is drained by a line in the file of --servers-file.

    Examples:

        sensorium gateway http://10.0.0.5:8000 http://10.0.0.6:8000
        sensorium gateway --servers-file servers.txt --host 0.0.0.0 --api-key s3cret
        sensorium gateway http://10.0.0.5:8000 --caller-secret a-secret-of-both
    """
    config = replace(behind, servers=servers)
    config.listed()
    configure(logs)
    with LeavingAtOnce(), importing():
        from .gateway import serve_gateway

    async def run_until_signal() -> None:
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
        trio.run(run_until_signal)
    except BaseExceptionGroup as group:
        error = first_error(group)
        if not isinstance(error, AddressError | ConfigError):
            raise
        flush()
        fail(error)
        return 1
    return 0
