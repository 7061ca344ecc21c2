"""One run of a streaming model, held by a task of its own that feeds it as far as it is asked to.

So a question that is given up changes nothing. What the transcript would be if the audio ended here is asked
of a *fork*, which gets the masked rest of the last chunk while the run goes on. Read
`actors/speech/streaming/feed.py` for how a run is fed, `turn.py` and `captions.py` for who asks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic
from uuid import uuid4

import msgspec
import trio

from ....protocols.engine.messages import Lane, Request, RequestId, Transduced, TransduceRequest
from ....protocols.transcription.streaming import ChunkDelay
from ....protocols.transcription.transcript import TranscriptionOptions
from ...inference.client import FedRun
from ...runtime.compute_pool import working_for
from ..model import FILE, LIVE_FINAL
from .family import StreamingFamily
from .feed import Feed, ReaderT, ResumedLater


def request_of(
    family: StreamingFamily, options: TranscriptionOptions, delay: ChunkDelay, lane: Lane
) -> TransduceRequest:
    """What is asked of the engine about one stream."""
    request_id = RequestId(f"stream-{uuid4().hex}")
    return Request(request_id, (), family.task(delay, options.language), lane=lane)


@dataclass(slots=True, eq=False)
class StreamRun(Generic[ReaderT]):
    """A run, and the task that feeds it."""

    family: StreamingFamily
    options: TranscriptionOptions
    delay: ChunkDelay
    lane: Lane
    feed: Feed[ReaderT]
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_over: bool = False
    wanted_end: int = 0
    """How far it was asked to go."""
    _failure: Exception | None = None
    _final: tuple[int, ReaderT] | None = None
    """The newest answer of a fork, and where its audio ends."""
    _final_end: int | None = None
    """Where the audio of the fork ends that is waited for."""
    _asked: trio.Event = field(default_factory=trio.Event)
    _answered: trio.Event = field(default_factory=trio.Event)

    async def serve(self) -> None:
        """Hold the run until `scope` is cancelled or something fails."""
        try:
            with self.scope, working_for(self.lane):
                while True:
                    with suppress(ResumedLater):
                        await self._run()
                    self._asked.set()
        except Exception as error:  # it is raised where somebody waits for an answer
            self._failure = error
        finally:
            self.is_over = True
            self._answered.set()

    async def advance(self, end: int) -> ReaderT:
        """The run's reader, once it has what every chunk says that is full at sample `end`."""
        self.wanted_end = max(self.wanted_end, end)
        await self._until(lambda: self.feed.position >= end)
        return self.feed.reader

    async def conclude(self, end: int) -> ReaderT:
        """A reader that has what is said if the audio ends at sample `end`."""
        self.wanted_end = max(self.wanted_end, end)
        if self._final is None or self._final[0] != end:
            self._final_end = end
            await self._until(lambda: self._final is not None and self._final[0] == end)
        assert self._final is not None
        return self._final[1]

    async def _until(self, is_there: Callable[[], bool]) -> None:
        self._asked.set()
        while not is_there():
            if self.is_over:
                raise self._failure or trio.ClosedResourceError("the stream is closed")
            if self._answered.is_set():
                self._answered = trio.Event()
            await self._answered.wait()

    async def _run(self) -> None:
        request = request_of(self.family, self.options, self.delay, self.lane)
        async with self.family.engine.placed(lane=self.lane) as place, place.run(request) as run:
            await self._serve(run)

    async def _serve(self, run: FedRun) -> None:
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            end = self._final_end
            await self.feed.advance(run, self.wanted_end if end is None else end)
            if end is not None:
                self._final = end, await self._concluded(run, end)
                if self._final_end == end:
                    self._final_end = None
                await self.feed.advance(run, self.wanted_end)
            self._answered.set()

    async def _concluded(self, run: FedRun, end: int) -> ReaderT:
        if self.feed.is_at_chunk:  # nothing that the run has not had
            reader = self.feed.reader.copy()
            reader.push(Transduced(RequestId(""), num_frames=reader.num_rows, finish_reason="stop"))
            return reader
        feed = self.feed.fork()
        lane = self.lane if self.lane.service == FILE.service else LIVE_FINAL
        lane = msgspec.structs.replace(lane, caller=self.lane.caller)
        async with run.fork(request_of(self.family, self.options, self.delay, lane)) as fork:
            await feed.conclude(fork, end)
        return feed.reader
