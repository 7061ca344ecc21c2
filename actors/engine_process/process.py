"""Starts the process that runs the engines, connects to it, watches it, and starts it again when it dies.

It is a new interpreter, not a copy of this one, which has threads; both hold one end of a pair of sockets. It
ends with this process however that ends: it sees the end of the stream, and on Linux the kernel kills it.
Signals of a terminal do not reach it. Read `actors/engine_process/__main__.py` for what it does,
`actors/engine_process/connection.py` for what is said.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Final

import msgspec
import trio

from ...protocols.errors import ModelLoadError, SensoriumError, UnavailableError
from ..runtime.supervisor import Child, Health, RestartPolicy, Supervisor
from ..runtime.threads import is_short
from ..worker_config import Orders, written
from . import messages
from .checkpoints import Checkpoint
from .client import RemoteEngine
from .connection import SILENCE_S, Line
from .messages import Message
from .multiplexer import LinkLostError

logger = logging.getLogger(__name__)

_LEAVE_S: Final = 2.0
"""How long it may take to end by itself, once nobody talks to it any more."""
_CHECK_INTERVAL_S: Final = 0.5
_POLL_S: Final = 0.02
_AGAIN_S: Final = 5.0
"""From one try to start it, where the system cannot, to the next."""
_PATIENCE: Final = 3
"""How many times longer it may be silent while it loads: a library from a cold disk holds up all else."""
_SOCKET_BYTES: Final = 1024 * 1024


class EngineProcessError(UnavailableError):
    """The process is gone, or says nothing any more."""


class _ReplacedError(Exception):
    """The process has to make room for a new one, as somebody asked."""


class FilesChangedError(ModelLoadError):
    """What a model is made of is not what it was at the first start: trying again changes nothing."""


class EngineProcess:
    """One process and its engines, over all its incarnations. Start `run`."""

    def __init__(
        self,
        orders: Orders,
        *,
        silence_s: float,
        left_out_s: float | None = None,
        has_others: Callable[[], bool] = lambda: False,
        cores: Collection[int] = (),
        policy: RestartPolicy | None = None,
        command: Sequence[str] = (sys.executable, "-P", "-m", "sensorium.actors.engine_process"),
        name: str = "engines",
    ) -> None:
        """It is killed after `silence_s` without a word, and asked nothing after `left_out_s` already: what
        it was asked then fails, as it does when it dies. `has_others` says whether other processes do the
        same work, so that it can be asked for again at once. It runs on `cores`; empty: on all."""
        self.name = name
        self._orders = orders
        self._silence_s = silence_s
        self._left_out_s = left_out_s or math.inf
        self._has_others = has_others
        self._cores = frozenset(cores)
        self._command = command
        self._supervisor = Supervisor(
            name, self._start, policy=policy, fatal=FilesChangedError, planned=_ReplacedError
        )
        self._replace = trio.Event()
        self._begun: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._load_s = 0.0
        """How long the last that became ready took for that."""
        self._loading_since: float | None = None
        self.engines = tuple(
            RemoteEngine(order.name, index, self._down, self._back_in_s)
            for index, order in enumerate(orders.models)
        )
        self.opened: messages.Opened | None = None
        """What it said of its models, once it was ready for the first time."""
        self.checkpoints: Sequence[Checkpoint] = ()
        """The files that came with that, of each model."""

    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    def num_restarts(self) -> int:
        """Times it was started again."""
        return self._supervisor.num_restarts

    @property
    def health(self) -> Health:
        """Where it is in its life."""
        return self._supervisor.health

    def replace(self) -> None:
        """End the process, and start another in its place. What it was asked fails, as when it dies."""
        self._replace.set()

    @contextmanager
    def begun(self) -> Iterator[None]:
        """A context in which it is started already, ahead of `run`, and loads; it ends if nobody ran it.

        For the main thread: where a parent's thread ends, Linux kills the process.
        """
        process, ours = self._begun = self._spawn()
        self._process = process
        try:
            yield
        finally:
            if self._begun is not None:
                ours.close()
                process.kill()
                process.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep it running until cancelled; `started` once its models are loaded.

        Raises what its first start failed with (ModelLoadError, for one).
        """
        try:
            await self._supervisor.run(task_status=task_status)
        except FilesChangedError as error:
            logger.critical("%s", error)
            await trio.sleep_forever()  # as one that crashed too often

    def _down(self) -> Health:
        health = self._supervisor.health
        return "restarting" if health == "ready" else health

    def _back_in_s(self) -> float:
        """When it can be asked again: at once if there are others; else when it is ready, if that takes as
        long as it did, and a second at least."""
        if self._has_others():
            return 0.0
        loading_s = 0.0 if self._loading_since is None else time.monotonic() - self._loading_since
        return max(1.0, self._load_s - loading_s)

    def _start(self) -> Sequence[Child]:
        return (Child("process", self._run_process),)

    async def _run_process(self, *, task_status: trio.TaskStatus[None]) -> None:
        (process, ours), self._begun = self._begun or await self._spawned(), None
        self._process = process
        self._replace = trio.Event()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        try:
            await self._talk(process, stream, task_status)
        finally:
            self._process = None
            stream.socket.close()
            with trio.CancelScope(shield=True):
                await _ended(process)

    async def _spawned(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """As `_spawn`; after the first start it tries until it can: that is no crash of ours to count."""
        while True:
            try:
                return self._spawn()
            except OSError as error:
                if self.opened is None or not is_short(error):
                    raise
                logger.error("the engines' process cannot be started now: %s", error)
            await trio.sleep(_AGAIN_S)

    def _spawn(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """A process that has its orders, and our end of the pair."""
        self._loading_since = time.monotonic()
        names = [order.name for order in self._orders.models]
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                for each in (ours, theirs):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
                # Not by trio, which starts processes in a thread: where a parent's thread ends, it is killed.
                process = subprocess.Popen(
                    [*self._command, str(theirs.fileno()), *names],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # whatever a library prints is no answer of ours
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
            if self._cores:
                # Before it has threads, which inherit this.
                os.sched_setaffinity(process.pid, self._cores)
            known = () if self.opened is None else tuple(each.digest for each in self.opened.checkpoints)
            orders = msgspec.structs.replace(self._orders, known_checkpoints=known)
            with suppress(BrokenPipeError):  # it is gone already, as who talks to it will see
                ours.sendall(written(orders))  # some KiB, which the socket holds until they are read
        except BaseException:
            ours.close()
            raise
        return process, ours

    async def _talk(
        self, process: subprocess.Popen[bytes], stream: trio.abc.Stream, task_status: trio.TaskStatus[None]
    ) -> None:
        news = _News(self.engines, self._ready(task_status), self._back_in_s)
        line = news.line = Line(stream, news.take, silence_s=min(SILENCE_S, self._left_out_s))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, line, news)
                nursery.start_soon(self._wait_replaced)
                await line.run(news.lost)
        except* (LinkLostError, trio.BrokenResourceError):
            raise news.error or EngineProcessError(await _obituary(process)) from None

    def _ready(
        self, task_status: trio.TaskStatus[None]
    ) -> Callable[[messages.Opened, Sequence[bytes]], None]:
        def ready(opened: messages.Opened, contents: Sequence[bytes]) -> None:
            if self.opened is None:
                self.opened, left = opened, iter(contents)
                self.checkpoints = tuple(
                    Checkpoint(files, tuple(islice(left, len(files.names)))) for files in opened.checkpoints
                )
            for order, first, now in zip(
                self._orders.models, _identities(self.opened), _identities(opened), strict=True
            ):
                if first != now:
                    raise FilesChangedError(
                        f"{order.name}: its files are not those this server began with; restart the server"
                    )
            assert self._loading_since is not None
            self._load_s, self._loading_since = time.monotonic() - self._loading_since, None
            logger.info("the %s run in process %s", self.name, self.pid())
            task_status.started()

        return ready

    async def _watch(self, line: Line, news: _News) -> None:
        """Raise when it says nothing any more."""
        is_left_out = False
        while True:
            limit_s = self._silence_s * (1 if news.is_ready else _PATIENCE)
            if line.silent_s >= limit_s:
                raise EngineProcessError(f"the engine process has not responded for {limit_s:g} s")
            if news.is_ready and is_left_out != (line.silent_s >= self._left_out_s):
                is_left_out = not is_left_out
                if is_left_out:
                    logger.warning(
                        "%s: silent for %.2g s; left out until it speaks", self.name, line.silent_s
                    )
                    line.give_up_calls(_lost(f"the {self.name} did not respond", self._back_in_s()))
                else:
                    logger.info("%s: speaks again", self.name)
            await trio.sleep(min(_CHECK_INTERVAL_S, self._left_out_s / 4))

    async def _wait_replaced(self) -> None:
        await self._replace.wait()
        raise _ReplacedError


class _News:
    """What one incarnation says without being asked."""

    def __init__(
        self,
        engines: Sequence[RemoteEngine],
        on_ready: Callable[[messages.Opened, Sequence[bytes]], None],
        back_in_s: Callable[[], float],
    ) -> None:
        self.line: Line | None = None
        self.error: SensoriumError | None = None
        """Why it cannot go on, as it says itself."""
        self.is_ready = False
        self._engines = engines
        self._on_ready = on_ready
        self._back_in_s = back_in_s

    def take(self, message: Message, buffers: Sequence[bytes]) -> None:
        """Something was said."""
        match message:
            case messages.State():
                for engine in self._engines:
                    engine.take(message)
            case messages.Opened():
                assert self.line is not None
                self._on_ready(message, buffers)
                self.is_ready = True
                for engine in self._engines:
                    engine.connect(self.line)
            case messages.Failed():
                self.error = messages.raised(message)

    def lost(self) -> SensoriumError:
        """It is gone; what becomes of calls in flight."""
        for engine in self._engines:
            engine.disconnect()
        return _lost("the engines' process failed and is being restarted", self._back_in_s())


def _lost(message: str, back_in_s: float) -> UnavailableError:
    error = UnavailableError(message, code="engine_lost")
    error.retry_after_s = back_in_s
    return error


def _identities(opened: messages.Opened) -> list[tuple[dict[str, Any], str]]:
    """What must not change of each model: what is known of it, and the digest of its files."""
    digests = (each.digest for each in opened.checkpoints)
    return list(zip(opened.models, digests, strict=True))


async def _obituary(process: subprocess.Popen[bytes]) -> str:
    """How it ended, if it has."""
    code = await _code(process, 1.0)
    if code is None:
        return "the engines' process has closed its connection"
    how = f"by signal {-code}" if code < 0 else f"with status {code}"
    return f"the engines' process {process.pid} ended {how}"


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Return when it is gone; it is killed if that takes long."""
    if await _code(process, _LEAVE_S) is None:
        process.kill()
        await _code(process, math.inf)


async def _code(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """Of its end; None where it does not end in time. Looked for: there may be no thread that could wait."""
    end = trio.current_time() + timeout_s
    while True:
        code = process.poll()
        if code is not None or trio.current_time() >= end:
            return code
        await trio.sleep(_POLL_S)
