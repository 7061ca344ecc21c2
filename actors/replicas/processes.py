"""Several processes that run the same models, each on its share of the machine, and the clients that see one.

They start at the same time; the first start of one that fails ends all. Later each is restarted alone, while
the others take its requests. Read `actors/engine_process/process.py` for one process, `client.py` beside this
file for how a request is placed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

import trio

from ...engine.models.info import ModelInfo
from ..config.server import ServerConfig
from ..config.validation import read_host_port
from ..engine_process import messages
from ..engine_process.client import RemoteEngine
from ..engine_process.peer import EnginePeer, FilesChangedError
from ..engine_process.process import EngineProcess
from ..inference.client import EngineClient
from ..nodes.client import EngineNode
from ..nodes.handshake import read_secret
from ..nodes.tls import tls_context
from ..telemetry.metrics import Metrics
from .client import ReplicatedEngine
from .metrics import register_replicas

logger = logging.getLogger(__name__)

LEFT_OUT_S: Final = 1.0
"""A replica that has been silent for so long is asked nothing until it speaks; states come four times a
second."""
_CHECK_INTERVAL_S: Final = 0.05


PeerT = TypeVar("PeerT", bound=EnginePeer)


class ModelProcesses(Protocol):
    """What runs a server's models in processes of their own. Start `run`."""

    @property
    def processes(self) -> Sequence[EnginePeer]:
        """Each of them. Those that are ready have said what they run."""
        ...

    @property
    def engines(self) -> Sequence[EngineClient]:
        """One for each model, in order."""
        ...

    def set_info(self, index: int, info: ModelInfo) -> None:
        """What is known of the model of that number."""
        ...

    def begun(self) -> AbstractContextManager[None]:
        """See `EngineProcess.begun`."""
        ...

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `EngineProcess.run`."""
        ...

    def add_metrics(self, metrics: Metrics) -> None:
        """Have the processes' memory, time, restarts and requests read at every scrape."""
        ...

    async def replace_all(self, drain_s: float) -> None:
        """Replace the processes one after the other, each when it has nothing more to do, after `drain_s` at
        the latest. Requests go to the others meanwhile."""
        ...


class SingleProcess:
    """One process, whose engines are asked as they are."""

    def __init__(self, process: EngineProcess) -> None:
        self._process = process
        self.processes: Sequence[EnginePeer] = (process,)
        self.engines: Sequence[RemoteEngine] = process.engines
        self.begun = process.begun
        self.run = process.run

    def set_info(self, index: int, info: ModelInfo) -> None:
        """See `ModelProcesses.set_info`."""
        self.engines[index].set_info(info)

    def add_metrics(self, metrics: Metrics) -> None:
        """See `ModelProcesses.add_metrics`."""
        metrics.add_process(self._process.pid, self._process.num_restarts)

    async def replace_all(self, drain_s: float) -> None:  # noqa: ARG002 (nobody else would take its requests)
        """There is no other to go on with."""
        logger.warning(
            "not replaced: one process runs the models; --replicas 2 lets one be replaced at a time"
        )


class Replicas(Generic[PeerT]):
    """Several processes with the same models."""

    def __init__(
        self, make: Callable[[int, Callable[[], bool]], PeerT], num_replicas: int, config: ServerConfig
    ) -> None:
        """`make` gives the process of a number that is not started, told how it learns whether another is
        ready."""
        self._make = make
        self._drained: set[int] = set()
        self._is_replacing = False
        self.processes: list[PeerT] = [
            make(index, partial(self._has_others, index)) for index in range(num_replicas)
        ]
        for index, process in enumerate(self.processes):
            process.on_lost = partial(self._forget, index)
        self.engines: Sequence[ReplicatedEngine] = [
            ReplicatedEngine(
                name,
                [process.engines[number] for process in self.processes],
                block_size=config.engine_of(name).block_size,
                is_drained=self._drained.__contains__,
            )
            for number, name in enumerate(config.public_names)
        ]

    def add(self) -> PeerT:
        """One more, which is not started."""
        index = len(self.processes)
        process = self._make(index, partial(self._has_others, index))
        process.on_lost = partial(self._forget, index)
        self.processes.append(process)
        for number, engine in enumerate(self.engines):
            engine.add(process.engines[number])
        return process

    def set_info(self, index: int, info: ModelInfo) -> None:
        """See `ModelProcesses.set_info`."""
        for process in self.processes:
            process.engines[index].set_info(info)

    @contextmanager
    def begun(self) -> Iterator[None]:
        """See `EngineProcess.begun`."""
        with ExitStack() as stack:
            for process in self.processes:
                stack.enter_context(process.begun())
            yield

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `EngineProcess.run`."""
        async with trio.open_nursery() as nursery:
            await self._start(nursery)
            task_status.started()

    async def _start(self, nursery: trio.Nursery) -> None:
        """Start all of them in `nursery`; return when there is enough to serve."""
        async with trio.open_nursery() as starting:
            for process in self.processes:
                starting.start_soon(nursery.start, process.run)

    def add_metrics(self, metrics: Metrics) -> None:
        """See `ModelProcesses.add_metrics`."""
        register_replicas(metrics.registry, self.processes, self.engines)

    async def replace_all(self, drain_s: float) -> None:
        """See `ModelProcesses.replace_all`. Does nothing while it is being done."""
        if self._is_replacing:
            logger.warning("replicas are being replaced already")
            return
        self._is_replacing = True
        try:
            for index in range(len(self.processes)):
                await self._replace(index, drain_s)
        finally:
            self._is_replacing = False
        logger.info("all replicas were replaced")

    async def _replace(self, index: int, drain_s: float) -> None:
        await _until(lambda: self._has_others(index))
        process, num_restarts = self.processes[index], self.processes[index].num_restarts()
        self._drained.add(index)
        try:
            with trio.move_on_after(drain_s):
                await _until(lambda: not any(engine.router.num_open(index) for engine in self.engines))
            process.replace()
            await _until(
                lambda: (
                    (process.num_restarts() > num_restarts and process.health == "ready")
                    or process.health == "failed"
                )
            )
        finally:
            self._drained.discard(index)

    def _forget(self, index: int) -> None:
        """A process that starts again has none of what was sent to the one before."""
        for engine in self.engines:
            engine.router.forget(index)

    def _has_others(self, index: int) -> bool:
        others = [process for number, process in enumerate(self.processes) if number != index]
        return any(engine.health == "ready" for process in others for engine in process.engines)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (of processes)
        await trio.sleep(_CHECK_INTERVAL_S)


class Nodes(Replicas[EngineNode]):
    """Engines that others started, on any machine."""

    def __init__(self, config: ServerConfig) -> None:
        """At the addresses of a configuration. Raises ConfigError for its secret and certificates."""
        where = config.process
        assert where.engine_secret_file is not None, "checked with the addresses"
        secret = read_secret("engine_secret_file", where.engine_secret_file)
        tls = tls_context(
            where.engine_tls_cert,
            where.engine_tls_key,
            where.engine_tls_ca,
            prefix="engine-tls",
            is_server=False,
        )
        self._first: EngineNode | None = None

        def make(index: int, has_others: Callable[[], bool]) -> EngineNode:
            return EngineNode(
                read_host_port("engines", where.engines[index]),
                config.public_names,
                secret,
                silence_s=where.engine_silence_s,
                left_out_s=LEFT_OUT_S,
                has_others=has_others,
                tls=tls,
                agree=self._agree,
            )

        super().__init__(make, len(where.engines), config)

    async def _start(self, nursery: trio.Nursery) -> None:
        """One is enough: the others are used when they are there."""
        ready = trio.Event()

        async def start(process: EnginePeer) -> None:
            try:
                await nursery.start(process.run)
            except FilesChangedError as error:
                if not ready.is_set():
                    raise
                logger.critical("%s; they are left out", error)  # others serve already
            ready.set()

        for process in self.processes:
            nursery.start_soon(start, process)
        await ready.wait()

    def _agree(self, node: EngineNode, opened: messages.Opened) -> None:
        self._first = agree_on(self._first, node, opened)

    async def replace_all(self, drain_s: float) -> None:  # noqa: ARG002 (they end and begin elsewhere)
        """They are replaced where they run."""
        logger.warning("not replaced: the engines run elsewhere; end one there with SIGTERM, and start it")


def agree_on(first: EngineNode | None, node: EngineNode, opened: messages.Opened) -> EngineNode:
    """The engines that all have to agree with, `node` being the first if there was none.

    All have to run the same models: of equal files, but for the weights, which are read only where they are
    computed with. Raises FilesChangedError.
    """
    if first is None or first.opened is None:
        return node
    for engine, ours, theirs in zip(node.engines, opened.checkpoints, first.opened.checkpoints, strict=True):
        if ours.digest != theirs.digest:
            raise FilesChangedError(f"{engine.name}: the {node.name} have other files than the {first.name}")
    return first
