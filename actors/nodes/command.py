"""`sensorium engine`: runs models for servers on other machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import trio

from ...client.terminal import fail
from ...protocols.errors import SensoriumError
from ..command_options import DEFAULTS, FLAT
from ..config.server import EngineConfig, ProcessConfig, ServerConfig
from ..config.validation import check, read_host_port
from ..errors import ConfigError
from ..importing import importing
from ..runtime.nursery import first_error
from ..runtime.stop_signals import watch_signals
from ..signals import LeavingAtOnce
from ..telemetry.logs import LogConfig, configure, flush, print_line


def engine(
    models: tuple[str, ...],
    *,
    listen: str = "127.0.0.1:9000",
    secret_file: Path,
    served_model_name: tuple[str, ...] = (),
    model: tuple[str, ...] = (),
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    tls_ca: Path | None = None,
    drain_s: float = 10.0,
    engine: Annotated[EngineConfig, FLAT] = DEFAULTS.engine,
    logs: Annotated[LogConfig, FLAT] = DEFAULTS.logs,
) -> int:
    """Run models for servers on other machines.

    Prints `engines listen on HOST:PORT` when ready; `sensorium serve MODEL --engines HOST:PORT` uses them. A
    server has to know the secret. What crosses the network is encrypted only with the three options of TLS.
    Ctrl-C and SIGTERM end it once the requests that run are finished.

    Examples:

        sensorium engine tiny-qwen3-asr --listen 10.0.0.2:9000 --secret-file secret

    Parameters
    ----------
    models
        Embedded names, local folders or Hugging Face ids.
    listen
        Address to listen on, HOST:PORT; port 0 takes a free one.
    secret_file
        File with a secret of 16 bytes or more that the servers have, too.
    served_model_name
        Public name of a model; repeat it, once per model in the same order.
    model
        Option of one model only, as `sensorium serve` takes it.
    tls_cert
        Certificate (PEM) to show, for TLS on both sides; with tls_key and tls_ca.
    tls_key
        Its key.
    tls_ca
        Certificates of the authority that those of servers must be of.
    drain_s
        Seconds that requests may take to finish at the end.
    """
    config = ServerConfig(
        models, served_model_name, engine=engine, logs=logs, model_options=model, process=ProcessConfig()
    )
    address = read_host_port("listen", listen, lowest_port=0)
    check("drain_s", drain_s, 0)
    with LeavingAtOnce(), importing():
        from .. import model_loading as loading  # torch, too
        from ..worker_config import orders_of
        from .handshake import read_secret
        from .server import run_node
        from .tls import tls_context
    secret = read_secret("secret_file", secret_file)
    tls = tls_context(tls_cert, tls_key, tls_ca, prefix="tls", is_server=True)
    configure(config.logs)

    async def run() -> None:
        ready, stop = trio.Event(), trio.Event()

        def announce(where: str) -> None:
            print_line(f"engines listen on {where}")
            ready.set()

        async with trio.open_nursery() as nursery:
            await nursery.start(watch_signals, ready, stop, nursery.cancel_scope)
            await run_node(
                orders_of(config),
                address,
                secret,
                loading.open_next,
                stop=stop,
                drain_s=drain_s,
                on_ready=announce,
                tls=tls,
            )
            nursery.cancel_scope.cancel()

    try:
        trio.run(run)
    except BaseExceptionGroup as group:
        error = first_error(group)
        if not isinstance(error, OSError | ConfigError | SensoriumError):
            raise
        flush()
        fail(f"--listen is {listen}: {error.strerror}" if isinstance(error, OSError) else error)
        return 1
    flush()
    os._exit(0)  # the interpreter's own end would wait for a step that still goes on
