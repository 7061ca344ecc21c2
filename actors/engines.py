"""Starts the engines of a server's models: in this process, or in one of their own.

Either way what comes is a `LoadedModel` for each, in order, and who faces clients cannot tell. This file
imports no torch; where engines run here, `actors/model_loading.py` does. Read
`actors/engine_process/process.py` for the other way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from ..engine.memory_limits import naming_shortage
from ..engine.models.side import open_side
from ..media.speech.voice_activity import VoiceActivityModel
from ..protocols.errors import DeviceLostError
from .config.server import ServerConfig
from .engine_process.small_files import Checkpoint
from .inference.client import EngineClient
from .replicas.processes import ModelProcesses
from .replicas.selection import model_processes
from .runtime.nursery import first_error
from .runtime.temp_files import in_own_folders
from .served_model import LoadedModel, loaded_model
from .worker_config import orders_of

if TYPE_CHECKING:
    from .inference.engine import Engine
    from .model_loading import OpenedModel

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Engines:
    """The engines of one server.

    One that runs here and loses its device ends the server: `stop` is called, and `lost` says why.
    """

    config: ServerConfig
    stop: Callable[[], None]
    lost: DeviceLostError | None = None
    processes: ModelProcesses | None = None
    """What runs them, if this process does not."""

    async def start(
        self, actors: trio.Nursery, activity: VoiceActivityModel
    ) -> Sequence[LoadedModel[EngineClient]]:
        """Start all of them in `actors`. Raises ModelLoadError."""
        if self.config.process.engine_process == "on":
            return await self._start_process(actors, activity)
        return await self._start_here(actors, activity)

    async def _start_process(
        self, actors: trio.Nursery, activity: VoiceActivityModel
    ) -> Sequence[LoadedModel[EngineClient]]:
        self.processes = processes = self.processes or model_processes(self.config)
        await actors.start(processes.run)
        first = next(process for process in processes.processes if process.opened is not None)
        assert first.opened is not None, "it was chosen for that"
        scratch: Path = await actors.start(_scratch_folder)
        loaded: list[LoadedModel[EngineClient]] = []
        for index, (fields, checkpoint) in enumerate(
            zip(first.opened.models, first.checkpoints, strict=True)
        ):
            work = partial(self._side_of, processes, index, fields, checkpoint, scratch, activity)
            loaded.append(await trio.to_thread.run_sync(work, abandon_on_cancel=True))
        for process in processes.processes:
            process.checkpoints = ()
        return loaded

    def _side_of(
        self,
        processes: ModelProcesses,
        index: int,
        fields: dict[str, Any],
        checkpoint: Checkpoint,
        scratch: Path,
        activity: VoiceActivityModel,
    ) -> LoadedModel[EngineClient]:
        """The side of a model whose checkpoint need not lie where this process runs: its small files came
        with the engine, and are written to a folder in `scratch`."""
        folder = scratch / str(index)
        checkpoint.write(folder)
        info, side = open_side(fields | {"folder": str(folder)})
        processes.set_info(index, info)
        config = self.config.engine_of(self.config.public_names[index])
        return loaded_model(processes.engines[index], info, side, activity=activity, config=config)

    async def _start_here(
        self, actors: trio.Nursery, activity: VoiceActivityModel
    ) -> Sequence[LoadedModel[EngineClient]]:
        from .model_loading import open_next

        orders = orders_of(self.config)
        opened: list[OpenedModel] = []
        for order in orders.models:
            started = time.monotonic()
            work = partial(open_next, orders, tuple(opened))
            with naming_shortage(order.name):
                opened.append(await trio.to_thread.run_sync(work, abandon_on_cancel=True))
                await actors.start(self._run, opened[-1].engine)
            logger.info("%s: ready after %.1f s", order.name, time.monotonic() - started)
        loaded: list[LoadedModel[EngineClient]] = []
        for each in opened:
            load = partial(loaded_model, activity=activity, config=self.config.engine_of(each.info.name))
            loaded.append(await trio.to_thread.run_sync(load, each.engine, each.info, each.side))
        return loaded

    async def _run(self, engine: Engine, *, task_status: trio.TaskStatus[None]) -> None:
        """Run one, `started` when it is ready; raises what its first start raised."""
        is_ready = False
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(engine.run)
                is_ready = True
                task_status.started()
        except* DeviceLostError as group:
            if not is_ready:
                raise
            error = first_error(group)
            assert isinstance(error, DeviceLostError)
            logger.critical("%s: %s; stopping, only a new process can use it", engine.name, error)
            self.lost = error
            self.stop()


async def _scratch_folder(*, task_status: trio.TaskStatus[Path]) -> None:
    """A folder of this server's own, as long as it runs."""

    async def hold(folder: str) -> None:
        task_status.started(Path(folder))
        await trio.sleep_forever()

    await in_own_folders(hold)
