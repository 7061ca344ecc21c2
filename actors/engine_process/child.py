"""What a process that runs engines does: it opens the models it is told to, and answers calls for them.

It ends when nobody is at the other end of its socket any more. Signals to stop are that one's business: this
one finishes what it is asked until then. Read `actors/engine_process/process.py` for who starts it,
`server.py` beside it for how it answers.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NoReturn, Protocol, TypeVar

import trio

from ...engine.memory_limits import naming_shortage
from ...engine.models.info import ModelInfo
from ...engine.models.side import info_fields
from ...protocols.errors import SensoriumError
from .. import worker_config as orders
from ..inference.engine import Engine
from ..runtime.nursery import first_error
from ..telemetry.logs import configure, flush
from ..worker_config import Orders
from . import messages
from .framing import small_frame
from .server import STATE_INTERVAL_S, EngineServer
from .small_files import Checkpoint, read_checkpoint

logger = logging.getLogger(__name__)

_NAME: Final = b"sensorium-model"
"""What `ps` and `top` call it: 15 characters at most."""
_SET_DEATH_SIGNAL, _SET_NAME = 1, 15  # of prctl(2)
SWITCH_INTERVAL_S: Final = 0.001
"""As the server's (`actors/server.py`): the device's thread and this process' loop share a lock, too."""


class Opened(Protocol):
    """A model that is open: `actors/model_loading.py` has them, and tests others."""

    @property
    def engine(self) -> Engine:
        """Not yet running."""

    @property
    def info(self) -> ModelInfo:
        """What is known of it."""


OpenedT = TypeVar("OpenedT", bound=Opened)

Open = Callable[[Orders, Sequence[OpenedT]], OpenedT]
"""Opens the next model of the orders, behind those that are open. Blocks; raises ModelLoadError."""


def run_child(descriptor: int, open_next: Open[OpenedT]) -> NoReturn:
    """Run in the process' main thread until the other end of the socket `descriptor` is gone."""
    # The last is for writing to a terminal that stops who does so from the background, as this one is.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    _report_kernel()
    sock = socket.socket(fileno=descriptor)
    try:
        config = orders.read(sock)
    except (EOFError, OSError):
        os._exit(0)
    configure(config.logs)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    status = trio.run(_serve, config, sock, open_next)
    flush()
    os._exit(status)  # the device's thread may be within a step; nobody waits for that


def _report_kernel() -> None:
    """On Linux: to be killed with who started this process, and a name."""
    if sys.platform != "linux":
        return
    control = ctypes.CDLL(None, use_errno=True).prctl
    control(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    control(_SET_NAME, _NAME, 0, 0, 0)


async def _serve(config: Orders, sock: socket.socket, open_next: Open[OpenedT]) -> int:
    """Exit status."""
    status = 0
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
    try:
        async with trio.open_nursery() as nursery:
            await _run(config, stream, open_next, nursery)
            nursery.cancel_scope.cancel()
    except* SensoriumError as group:
        error = first_error(group)
        assert isinstance(error, SensoriumError)
        logger.debug("%s", error)  # who started this process says it
        await _report_why(stream, error)
        status = 1
    return status


async def _run(
    config: Orders, stream: trio.abc.Stream, open_next: Open[OpenedT], nursery: trio.Nursery
) -> None:
    # Where memory is refused, a thread may end without its result: the first failure ends the wait for it.
    with naming_shortage(", ".join(order.name for order in config.models)):
        async with trio.open_nursery() as loading:
            loading.start_soon(_report_loading, stream)
            engines, hello, contents = await open_all(config, open_next, nursery)
            loading.cancel_scope.cancel()
    await EngineServer(engines, stream).run(hello, contents)
    os._exit(0)  # there is nobody to give anything back to


async def open_all(
    config: Orders, open_next: Open[OpenedT], nursery: trio.Nursery
) -> tuple[Sequence[Engine], messages.Opened, Sequence[bytes]]:
    """Open all models and run their engines in `nursery`; what to say of them, and their files' contents.

    Raises ModelLoadError.
    """
    opened: list[OpenedT] = []
    checkpoints: list[Checkpoint] = []
    for order in config.models:
        started = time.monotonic()
        with naming_shortage(order.name):
            model = await trio.to_thread.run_sync(open_next, config, tuple(opened), abandon_on_cancel=True)
            opened.append(model)
            await nursery.start(model.engine.run)
        read = partial(read_checkpoint, model.info.folder, config.known_checkpoints)
        checkpoints.append(await trio.to_thread.run_sync(read))
        logger.info("%s: ready after %.1f s", order.name, time.monotonic() - started)
    gc.collect()
    gc.freeze()
    hello = messages.Opened(
        tuple(info_fields(each.info) for each in opened), tuple(each.files for each in checkpoints)
    )
    contents = [content for each in checkpoints for content in each.contents]
    return [each.engine for each in opened], hello, contents


async def _report_loading(stream: trio.abc.SendStream) -> None:
    """Say that this process is there, until cancelled."""
    frame = small_frame(messages.NEWS, messages.encode(messages.Loading()))
    assert frame is not None
    while True:
        try:
            await stream.send_all(frame)
        except trio.BrokenResourceError:
            os._exit(0)  # nobody waits for the models any more
        await trio.sleep(STATE_INTERVAL_S)


async def _report_why(stream: trio.SocketStream, error: SensoriumError) -> None:
    frame = small_frame(messages.NEWS, messages.encode(messages.failed(error)))
    assert frame is not None
    try:
        await stream.send_all(frame)
    except trio.BrokenResourceError:
        logger.debug("nobody is there to be told")
