"""A process that runs engines, here or on another machine, as who faces clients sees it: all its
incarnations.

It keeps a connection, and while there is none its engines say so; what is in flight when one is lost fails.
Read `process.py` for one that is started here, `connection.py` for what is said.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, Final

import trio

from ...protocols.errors import ModelLoadError, SensoriumError, UnavailableError
from ..runtime.supervisor import Child, Health, RestartPolicy, Supervisor
from . import messages
from .client import RemoteEngine
from .connection import SILENCE_S, Line
from .messages import Message
from .multiplexer import LinkLostError
from .small_files import Checkpoint

logger = logging.getLogger(__name__)

_CHECK_INTERVAL_S: Final = 0.5
_PATIENCE: Final = 3
"""How many times longer it may be silent while it loads: a library from a cold disk holds up all else."""


class EngineProcessError(UnavailableError):
    """The process is gone, or says nothing any more."""


class ReplacedError(Exception):
    """The process has to make room for a new one, as somebody asked."""


class FilesChangedError(ModelLoadError):
    """What a model is made of is not what it was at the first start: trying again changes nothing."""


class EnginePeer(ABC):
    """One process and its engines. Start `run`."""

    def __init__(
        self,
        name: str,
        models: Sequence[str],
        *,
        silence_s: float,
        left_out_s: float | None = None,
        has_others: Callable[[], bool] = lambda: False,
        policy: RestartPolicy | None = None,
    ) -> None:
        """`models` are the names of its engines, in order. The connection is given up after `silence_s`
        without a word; after `left_out_s` nothing more is asked, and what was asked fails, as it does when
        the connection is lost. `has_others` says whether others do the same work, so that it can be asked for
        again at once."""
        self.name = name
        self._silence_s = silence_s
        self._left_out_s = left_out_s or math.inf
        self._has_others = has_others
        self._supervisor = Supervisor(
            name, self._start, policy=policy, fatal=FilesChangedError, planned=ReplacedError
        )
        self._replace = trio.Event()
        self._load_s = 0.0
        """How long the last that became ready took for that."""
        self._loading_since: float | None = None
        self.engines = tuple(
            RemoteEngine(model, index, self._down, self._back_in_s) for index, model in enumerate(models)
        )
        self.on_lost: Callable[[], None] = lambda: None
        """Called in the trio loop when a connection has ended, also by `replace` or by cancellation: what was
        sent to the process is lost. Its engines are down by then."""
        self.opened: messages.Opened | None = None
        """What it said of its models, once it was ready for the first time."""
        self.checkpoints: Sequence[Checkpoint] = ()
        """The files that came with that, of each model."""

    def begun(self) -> AbstractContextManager[None]:
        """A context in which it is started already, ahead of `run`, if it is started from here."""
        return nullcontext()

    @abstractmethod
    def pid(self) -> int | None:
        """Of the process, while there is one on this machine."""

    @abstractmethod
    def _where(self) -> str:
        """Where it runs, for the log."""

    @abstractmethod
    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Connect, and `_talk` until that is over; raises why."""

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

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep it running until cancelled; `started` once its models are loaded.

        Raises what its first start failed with (ModelLoadError, for one).
        """
        try:
            await self._supervisor.run(task_status=task_status)
        except FilesChangedError as error:
            if self.opened is None:
                raise
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

    def _check(self, opened: messages.Opened) -> None:  # noqa: B027 (one that is started here runs what it was told)
        """Raise FilesChangedError if it runs other models than it has to."""

    def _start(self) -> Sequence[Child]:
        self._replace = trio.Event()
        return (Child("process", self._run),)

    async def _talk(
        self,
        stream: trio.abc.Stream,
        task_status: trio.TaskStatus[None],
        obituary: Callable[[], Awaitable[str]],
    ) -> None:
        """Ask over `stream` until it is lost, which `obituary` explains; `started` when its models are
        loaded."""
        news = _News(self.engines, self._ready(task_status), self._back_in_s, self.on_lost)
        line = news.line = Line(stream, news.take, silence_s=min(SILENCE_S, self._left_out_s))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, line, news)
                nursery.start_soon(self._wait_replaced)
                await line.run(news.lost)
        except* (LinkLostError, trio.BrokenResourceError):
            raise news.error or EngineProcessError(await obituary()) from None

    def _ready(
        self, task_status: trio.TaskStatus[None]
    ) -> Callable[[messages.Opened, Sequence[bytes]], None]:
        def ready(opened: messages.Opened, contents: Sequence[bytes]) -> None:
            self._check(opened)
            if self.opened is None:
                self.opened, left = opened, iter(contents)
                self.checkpoints = tuple(
                    Checkpoint(files, tuple(islice(left, len(files.names)))) for files in opened.checkpoints
                )
            for engine, first, now in zip(
                self.engines, _identities(self.opened), _identities(opened), strict=True
            ):
                if first != now:
                    raise FilesChangedError(
                        f"{engine.name}: its files are not those this server began with; restart the server"
                    )
            assert self._loading_since is not None
            self._load_s, self._loading_since = time.monotonic() - self._loading_since, None
            logger.info("the %s run in %s", self.name, self._where())
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
        raise ReplacedError


class _News:
    """What one incarnation says without being asked."""

    def __init__(
        self,
        engines: Sequence[RemoteEngine],
        on_ready: Callable[[messages.Opened, Sequence[bytes]], None],
        back_in_s: Callable[[], float],
        on_lost: Callable[[], None],
    ) -> None:
        self.line: Line | None = None
        self.error: SensoriumError | None = None
        """Why it cannot go on, as it says itself."""
        self.is_ready = False
        self._engines = engines
        self._on_ready = on_ready
        self._back_in_s = back_in_s
        self._on_lost = on_lost

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
        self._on_lost()
        return _lost("the engines' process failed and is being restarted", self._back_in_s())


def _lost(message: str, back_in_s: float) -> UnavailableError:
    error = UnavailableError(message, code="engine_lost")
    error.retry_after_s = back_in_s
    return error


def _identities(opened: messages.Opened) -> list[tuple[dict[str, Any], str]]:
    """What must not change of each model: what is known of it, and the digest of its files."""
    digests = (each.digest for each in opened.checkpoints)
    return list(zip(opened.models, digests, strict=True))
