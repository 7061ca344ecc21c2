"""An engine behind a line: everything crosses as bytes, through memory instead of sockets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio
from sensorium.actors.engine_process import messages
from sensorium.actors.engine_process.client import RemoteEngine
from sensorium.actors.engine_process.connection import Line
from sensorium.actors.engine_process.messages import Message
from sensorium.actors.engine_process.multiplexer import LinkLostError
from sensorium.actors.engine_process.server import EngineServer
from sensorium.actors.inference.engine import Engine
from sensorium.engine.models.side import info_fields
from sensorium.protocols.errors import SensoriumError, UnavailableError
from trio.testing import MemoryReceiveStream, MemorySendStream, memory_stream_pair

MemoryStream = trio.StapledStream[MemorySendStream, MemoryReceiveStream]


@dataclass
class Connection:
    """The client of an engine that runs, its line, and both ends of the stream. Start `run`."""

    engine: Engine
    remote: RemoteEngine = field(init=False)
    line: Line = field(init=False)
    ours: MemoryStream = field(init=False)
    theirs: MemoryStream = field(init=False)

    def __post_init__(self) -> None:
        self.remote = RemoteEngine(self.engine.name, 0, lambda: "restarting", lambda: 1.0)
        self.ours, self.theirs = memory_stream_pair()
        self.line = Line(self.ours, self._take)
        self._ready = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry calls until the line is lost."""
        hello = messages.Opened((info_fields(self.engine.info),), ())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(EngineServer([self.engine], self.theirs).run, hello, ())
            nursery.start_soon(self._run_line)
            await self._ready.wait()
            task_status.started()

    async def _run_line(self) -> None:
        try:
            await self.line.run(self._lost)
        except LinkLostError:
            await self.ours.aclose()

    def _take(self, message: Message, _buffers: Sequence[bytes]) -> None:
        match message:
            case messages.Opened():
                self.remote.set_info(self.engine.info)
                self.remote.connect(self.line)
                self._ready.set()
            case messages.State():
                self.remote.take(message)

    def _lost(self) -> SensoriumError:
        self.remote.disconnect()
        return UnavailableError("the line is lost")
