"""`sensorium cluster`: engines on the machines of a Ray cluster, and a directory where servers find them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import trio

from ...client.terminal import fail
from ...protocols.errors import SensoriumError
from ..command_options import DEFAULTS, FLAT
from ..config.cluster import ClusterConfig
from ..config.server import EngineConfig, ProcessConfig, ServerConfig
from ..config.validation import check, read_host_port
from ..errors import ConfigError
from ..importing import importing
from ..runtime.nursery import first_error
from ..runtime.stop_signals import watch_signals
from ..signals import LeavingAtOnce
from ..telemetry.logs import LogConfig, configure, flush, print_line

CLUSTER: Final = ClusterConfig()


def cluster(
    models: tuple[str, ...],
    *,
    listen: str = "127.0.0.1:9100",
    secret_file: Path,
    served_model_name: tuple[str, ...] = (),
    model: tuple[str, ...] = (),
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    tls_ca: Path | None = None,
    drain_s: float = 10.0,
    scale: Annotated[ClusterConfig, FLAT] = CLUSTER,
    engine: Annotated[EngineConfig, FLAT] = DEFAULTS.engine,
    logs: Annotated[LogConfig, FLAT] = DEFAULTS.logs,
) -> int:
    """Run engines on the machines of a Ray cluster, as many as requests need.

    Prints `directory on HOST:PORT` when the first engine is ready; `sensorium serve MODEL --cluster
    HOST:PORT` uses the engines, on any machine and any number of times. Ray starts and replaces engines;
    requests go from servers to engines. Needs `pip install 'sensorium[cluster]'` on each machine, and
    models at the same place on each. Ctrl-C and SIGTERM end all engines once their requests are finished.

    Examples:

        sensorium cluster tiny-qwen3-asr --address local --secret-file secret
        sensorium cluster openai/whisper-base --listen 10.0.0.1:9100 --secret-file secret --max-replicas 4

    Parameters
    ----------
    models
        Embedded names, local folders or Hugging Face ids.
    listen
        Address of the directory, HOST:PORT; port 0 takes a free one.
    secret_file
        File with a secret of 16 bytes or more that the servers have, too; engines get it from here.
    served_model_name
        Public name of a model; repeat it, once per model in the same order.
    model
        Option of one model only, as `sensorium serve` takes it.
    tls_cert
        Certificate (PEM) to show, for TLS on both sides; with tls_key and tls_ca. The files of these names on
        each machine are those of its engines.
    tls_key
        Its key.
    tls_ca
        Certificates of the authority that those of servers must be of.
    drain_s
        Seconds that requests may take to finish when an engine ends.
    """
    if not engine.num_threads and scale.num_cpus >= 1:
        engine = replace(engine, num_threads=int(scale.num_cpus))
    config = ServerConfig(
        models, served_model_name, engine=engine, logs=logs, model_options=model, process=ProcessConfig()
    )
    address = read_host_port("listen", listen, lowest_port=0)
    check("drain_s", drain_s, 0)
    with LeavingAtOnce(), importing():
        from ..nodes.handshake import read_secret
        from ..nodes.tls import tls_context
        from ..worker_config import orders_of
        from .cluster import Cluster
        from .directory import Directory, directory_listener
        from .pipe import EngineOrder
        from .ray_launcher import RayLauncher, check_authentication, connect
    check_authentication(scale, os.environ.get("RAY_AUTH_MODE", ""))
    secret = read_secret("secret_file", secret_file)
    tls = tls_context(tls_cert, tls_key, tls_ca, prefix="tls", is_server=True)
    files = tuple(map(str, (tls_cert, tls_key, tls_ca))) if tls is not None else ()
    order = EngineOrder(orders_of(config), secret, drain_s, files)
    configure(config.logs)
    with LeavingAtOnce():
        ray = connect(scale)
    directory = Directory(config.public_names, secret, tls)
    engines = Cluster(RayLauncher(ray, scale, order), directory, scale, drain_s=drain_s)

    async def run() -> None:
        ready, stop = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(watch_signals, ready, stop, nursery.cancel_scope)
            where = await nursery.start(directory.run, directory_listener(address))
            async with trio.open_nursery() as keeping:
                await keeping.start(engines.run, stop)
                print_line(f"directory on {where}")
                ready.set()
            nursery.cancel_scope.cancel()

    status = 0
    try:
        trio.run(run)
    except BaseExceptionGroup as group:
        error = first_error(group)
        if not isinstance(error, OSError | ConfigError | SensoriumError):
            raise
        flush()
        fail(f"cannot listen on {listen}: {error.strerror}" if isinstance(error, OSError) else error)
        status = 1
    flush()
    ray.shutdown()
    return status
