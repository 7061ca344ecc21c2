"""The process of one engine of a cluster: it serves, as `sensorium engine` does, what a pipe tells it to.

It ends at once where the other end of the pipe is closed: it does not outlive the Ray actor that started it.
Read `pipe.py` for the messages, `actors/nodes/server.py` for how it serves.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from pathlib import Path
from typing import NoReturn

import trio

from ...protocols.errors import ModelLoadError, SensoriumError
from ..config.validation import HostPort
from ..engine_process.child import Open, OpenedT
from ..errors import ConfigError
from ..nodes.server import run_node
from ..nodes.tls import tls_context
from ..runtime.nursery import first_error
from ..telemetry.logs import configure, flush
from .pipe import NotStarted, Start, Started, receive, send

logger = logging.getLogger(__name__)


def run_child(descriptor: int, open_next: Open[OpenedT]) -> NoReturn:
    """Run in the process' main thread until the pipe `descriptor` says stop, or is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is for who started all of this
    sock = socket.socket(fileno=descriptor)
    start = receive(sock)
    if not isinstance(start, Start):
        os._exit(1)
    configure(start.order.orders.logs)
    _leave_background()
    trio.run(_serve, start, sock, open_next)
    flush()
    os._exit(0)  # the device's thread may be within a step


def _leave_background() -> None:
    """Ray starts processes with a niceness of 15: any other program of the machine would delay sessions."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    if niceness <= 0:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except PermissionError:
        logger.warning(
            "this engine runs with niceness %d, as Ray started it; set RAY_worker_niceness=0 for `ray start`",
            niceness,
        )


async def _serve(start: Start, sock: socket.socket, open_next: Open[OpenedT]) -> None:
    order, stop = start.order, trio.Event()
    try:
        tls = tls_context(*map(Path, order.tls), prefix="tls", is_server=True) if order.tls else None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_wait_stopped, sock, stop)
            await run_node(
                order.orders,
                HostPort(start.host, 0),
                order.secret,
                open_next,
                stop=stop,
                drain_s=order.drain_s,
                on_ready=lambda address: send(sock, Started(address)),
                tls=tls,
            )
            nursery.cancel_scope.cancel()
    except* (SensoriumError, ConfigError, OSError) as group:
        error = first_error(group)
        send(sock, NotStarted(str(error), "model" if isinstance(error, ModelLoadError) else "other"))


async def _wait_stopped(sock: socket.socket, stop: trio.Event) -> None:
    if await trio.to_thread.run_sync(receive, sock, abandon_on_cancel=True) is None:
        flush()
        os._exit(1)  # who started this process is gone
    stop.set()
