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
from typing import Final

import msgspec
import trio

from ..runtime.supervisor import RestartPolicy
from ..runtime.threads import is_short
from ..worker_config import Orders, written
from .peer import EnginePeer

logger = logging.getLogger(__name__)

_LEAVE_S: Final = 2.0
"""How long it may take to end by itself, once nobody talks to it any more."""
_POLL_S: Final = 0.02
_AGAIN_S: Final = 5.0
"""From one try to start it, where the system cannot, to the next."""
_SOCKET_BYTES: Final = 1024 * 1024


class EngineProcess(EnginePeer):
    """One process of this machine and its engines, over all its incarnations. Start `run`."""

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
        """See `EnginePeer`; it is killed after `silence_s` without a word. It runs on `cores`; empty: on
        all."""
        super().__init__(
            name,
            [order.name for order in orders.models],
            silence_s=silence_s,
            left_out_s=left_out_s,
            has_others=has_others,
            policy=policy,
        )
        self._orders = orders
        self._cores = frozenset(cores)
        self._command = command
        self._begun: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    def _where(self) -> str:
        return f"process {self.pid()}"

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

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        (process, ours), self._begun = self._begun or await self._spawned(), None
        self._process = process
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        try:
            await self._talk(stream, task_status, lambda: _obituary(process))
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
