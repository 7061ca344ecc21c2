"""Engines that are found in a directory, and come and go while the server runs.

Each has a slot, which is a replica to everything else; a slot whose engine has left takes the next one. While
the directory cannot be reached, what it listed last stays in use. Read `actors/nodes/directory.py` for what
is said, `processes.py` for replicas.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Final

import trio

from ...engine.models.info import ModelInfo
from ...protocols.engine.histograms import Distribution
from ...protocols.errors import SensoriumError
from ..config.server import ServerConfig
from ..config.validation import HostPort, read_host_port
from ..engine_process import messages
from ..engine_process.peer import FilesChangedError, ReplacedError
from ..nodes.client import EngineNode
from ..nodes.connecting import AGAIN_S
from ..nodes.directory import Listing, Report, SeenEngine, look_up
from ..nodes.handshake import read_secret
from ..nodes.tls import tls_context
from .processes import LEFT_OUT_S, Replicas, agree_on

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.25
_NOWHERE: Final = HostPort("", 0)


class EngineSlot(EngineNode):
    """The engines at an address that changes, or at none. Start `run`."""

    _trying: trio.CancelScope | None = None
    """While it connects, or has no address."""
    usable_at = 0.0
    """When it was last ready, by trio's clock; else when it got its address."""

    @property
    def target(self) -> HostPort | None:
        """Where its engines are."""
        return None if self.address is _NOWHERE else self.address

    def move(self, address: HostPort | None) -> None:
        """Leave the engines it has, and take those at `address`, if any."""
        self.address = address or _NOWHERE
        self.name = self._supervisor.name = f"engines at {address}" if address else "engines of a free slot"
        self.usable_at = trio.current_time()
        if self._trying is not None:
            self._trying.cancel()
        else:
            self.replace()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `EnginePeer.run`, but that a first start that fails is tried again. What runs other models than
        the first engine that was used is not used."""
        while True:
            try:
                await self._supervisor.run(task_status=task_status)
            except FilesChangedError as error:
                if self.opened is None and not self._has_others():
                    raise
                logger.critical("%s; they are left out", error)
                self.address = _NOWHERE
            except ReplacedError:
                continue
            except SensoriumError as error:
                logger.warning("the %s could not be used: %s; it is tried again", self.name, error)
                await trio.sleep(AGAIN_S)

    async def _connected(self) -> trio.abc.Stream:
        """Connected to what is at the address by now."""
        try:
            while True:
                with trio.CancelScope() as self._trying:
                    if self.target is None:
                        await trio.sleep_forever()
                    return await super()._connected()
        finally:
            self._trying = None


class DiscoveredEngines(Replicas[EngineSlot]):
    """All engines that a directory lists."""

    def __init__(self, config: ServerConfig) -> None:
        """As `config.process` says. Raises ConfigError for its secret and certificates."""
        where = config.process
        assert where.engine_secret_file is not None, "checked with the address"
        self._directory = read_host_port("cluster", where.cluster)
        self._secret = read_secret("engine_secret_file", where.engine_secret_file)
        self._tls = tls_context(
            where.engine_tls_cert,
            where.engine_tls_key,
            where.engine_tls_ca,
            prefix="engine-tls",
            is_server=False,
        )
        self._silence_s = where.engine_silence_s
        self._models = config.public_names
        self._first: EngineNode | None = None
        self._infos: dict[int, ModelInfo] = {}
        self._nursery: trio.Nursery | None = None
        self._is_ready = trio.Event()
        super().__init__(self._slot, 1, config)

    def set_info(self, index: int, info: ModelInfo) -> None:
        """See `ModelProcesses.set_info`; it holds for engines that come later, too."""
        self._infos[index] = info
        super().set_info(index, info)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `EngineProcess.run`: one engine is enough to begin with."""
        async with trio.open_nursery() as self._nursery:
            for index in range(len(self.processes)):
                self._run_slot(index)
            self._nursery.start_soon(
                look_up, self._directory, self._secret, self._take, self._report, self._tls
            )
            self._nursery.start_soon(self._note_usable)
            await self._is_ready.wait()
            task_status.started()

    async def replace_all(self, drain_s: float) -> None:  # noqa: ARG002 (they end and begin elsewhere)
        """They are replaced by who started them."""
        logger.warning("not replaced: the engines belong to the cluster; restart `sensorium cluster`")

    def _slot(self, _index: int, has_others: Callable[[], bool]) -> EngineSlot:
        return EngineSlot(
            _NOWHERE,
            self._models,
            self._secret,
            silence_s=self._silence_s,
            left_out_s=LEFT_OUT_S,
            has_others=has_others,
            tls=self._tls,
            agree=self._agree,
        )

    def _agree(self, node: EngineNode, opened: messages.Opened) -> None:
        self._first = agree_on(self._first, node, opened)

    def _run_slot(self, index: int) -> None:
        assert self._nursery is not None, "called while it runs"
        self._nursery.start_soon(self._start_slot, self.processes[index])

    async def _start_slot(self, slot: EngineSlot) -> None:
        assert self._nursery is not None
        await self._nursery.start(slot.run)
        self._is_ready.set()

    def _take(self, listing: Listing) -> None:
        """Have a slot for each engine that is listed, and none for others."""
        listed = {read_host_port("engines", each.address): each for each in listing.engines}
        for slot in self.processes:
            if slot.target is not None and slot.target not in listed:
                logger.info("the %s have left the cluster", slot.name)
                slot.move(None)
        taken = {slot.target for slot in self.processes}
        for address in listed.keys() - taken:
            if not any(slot.target is None for slot in self.processes):
                self._add_slot()
            next(slot for slot in self.processes if slot.target is None).move(address)
        self._drained.clear()
        self._drained.update(
            index
            for index, slot in enumerate(self.processes)
            if slot.target is not None and listed[slot.target].state == "draining"
        )

    def _add_slot(self) -> None:
        slot = self.add()
        for index, info in self._infos.items():
            slot.engines[index].set_info(info)
        self._run_slot(len(self.processes) - 1)

    async def _note_usable(self) -> None:
        while True:
            for slot in self.processes:
                if _is_usable(slot):
                    slot.usable_at = trio.current_time()
                if self._infos:
                    slot.checkpoints = ()  # only the first engine's are written
            await trio.sleep(_LOOK_S)

    def _report(self) -> Report:
        now = trio.current_time()
        return Report(
            tuple(
                _seen(slot, 0.0 if _is_usable(slot) else now - slot.usable_at)
                for slot in self.processes
                if slot.target is not None
            )
        )


def _is_usable(slot: EngineSlot) -> bool:
    return all(engine.health == "ready" for engine in slot.engines)


def _seen(slot: EngineSlot, unusable_s: float) -> SeenEngine:
    latest = [engine.latest() for engine in slot.engines]
    return SeenEngine(
        str(slot.target),
        unusable_s,
        sum(each.num_running + each.num_waiting for each in latest),
        reduce(
            add,
            (times.queue_s for each in latest for times in (each.times_live, each.times_interactive)),
            Distribution(),
        ),
    )
