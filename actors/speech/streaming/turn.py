"""One turn while it is being spoken, by a model that streams: a chunk is computed once, and its text stays.

The turn's run is held by a task of its own (`_Stream.serve`), which feeds it as far as it is asked to, so a
question that is given up changes nothing. What the transcript would be if the turn ended here is asked of a
*fork*, which gets the masked rest of the last chunk while the run goes on. If the engine has gone down the
next question begins a new run with the same audio, and the text is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

import msgspec
import trio

from ....protocols.engine.messages import Lane, Request, RequestId, TransduceRequest
from ....protocols.errors import SensoriumError
from ....protocols.transcription.streaming import ChunkDelay
from ....protocols.transcription.transcript import Transcript, TranscriptionOptions
from ...inference.client import FedRun
from ...runtime.compute_pool import working_for
from ..model import FILE, LIVE_FINAL, LIVE_PARTIAL, ReadAudio
from .family import StreamingFamily
from .feed import Feed
from .reader import TokenReader


def request_of(
    family: StreamingFamily, options: TranscriptionOptions, delay: ChunkDelay, lane: Lane
) -> TransduceRequest:
    """What is asked of the engine about one stream."""
    request_id = RequestId(f"stream-{uuid4().hex}")
    return Request(request_id, (), family.task(delay, options.language), lane=lane)


@dataclass(slots=True, eq=False)
class _Stream:
    """A run, and the task that feeds it."""

    family: StreamingFamily
    options: TranscriptionOptions
    delay: ChunkDelay
    lane: Lane
    feed: Feed
    start: int
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    failure: Exception | None = None
    is_over: bool = False
    final: tuple[int, Transcript] | None = None
    """The newest answer of a fork, and where its audio ends."""
    wanted_end: int = 0
    """How far anybody has asked it to go."""
    _final_end: int | None = None
    """Where the audio of the fork ends that is waited for."""
    _asked: trio.Event = field(default_factory=trio.Event)
    _answered: trio.Event = field(default_factory=trio.Event)

    async def serve(self) -> None:
        """Hold the run until `scope` is cancelled or something fails."""
        try:
            with self.scope, working_for(self.lane):
                async with (
                    self.family.engine.placed(lane=self.lane) as place,
                    place.run(request_of(self.family, self.options, self.delay, self.lane)) as run,
                ):
                    await self._serve(run)
        except Exception as error:  # it is raised where somebody waits for an answer
            self.failure = error
        finally:
            self.is_over = True
            self._answered.set()

    async def partial(self, end: int) -> Transcript:
        """What every chunk says that is full at sample `end`."""
        self.wanted_end = max(self.wanted_end, end)
        await self._until(lambda: self.feed.position >= end)
        return self.transcript(end)

    async def conclusion(self, end: int) -> Transcript:
        """What the transcript is if the audio ends at sample `end`."""
        self.wanted_end = max(self.wanted_end, end)
        self._final_end = end
        await self._until(lambda: self.final is not None and self.final[0] == end)
        assert self.final is not None
        return self.final[1]

    def transcript(self, end: int) -> Transcript:
        """Of the chunks that were answered."""
        settled = len(self.feed.reader.text.rstrip())
        return self.feed.reader.transcript(end - self.start, num_settled=settled)

    async def _until(self, is_there: Callable[[], bool]) -> None:
        self._asked.set()
        while not is_there():
            if self.is_over:
                raise self.failure or trio.ClosedResourceError("the turn is closed")
            if self._answered.is_set():
                self._answered = trio.Event()
            await self._answered.wait()

    async def _serve(self, run: FedRun) -> None:
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            end = self._final_end
            await self.feed.advance(run, self.wanted_end if end is None else end)
            if end is not None:
                self._final_end = None
                self.final = end, await self._fork(run, end)
                await self.feed.advance(run, self.wanted_end)
            self._answered.set()

    async def _fork(self, run: FedRun, end: int) -> Transcript:
        feed = self.feed.fork()
        lane = msgspec.structs.replace(LIVE_FINAL, caller=self.lane.caller)
        request = request_of(self.family, self.options, self.delay, lane if self.lane != FILE else self.lane)
        async with run.fork(request) as fork:
            await feed.conclude(fork, end)
        settled = len(self.feed.reader.text.rstrip())
        return feed.reader.transcript(end - self.start, num_settled=settled)


class StreamedTurn:
    """A turn that starts at `start` (a `LiveTurn`). A second call waits for the first."""

    def __init__(
        self,
        family: StreamingFamily,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        delay: ChunkDelay,
        nursery: trio.Nursery,
        caller: str = "",
        on_final: Callable[[Transcript], object] = lambda _: None,
    ) -> None:
        """The run is held by a task in `nursery`. `on_final` gets each final transcript once."""
        self._family, self._read, self._options = family, read, options
        self._start, self._delay, self._caller = start, delay, caller
        self._nursery, self._on_final = nursery, on_final
        self._stream: _Stream | None = None
        self._lock = trio.Lock()
        self._is_closed = False
        self._reported_end: int | None = None

    async def hypothesis(
        self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
    ) -> Transcript:
        """What the chunks of `[start, end)` say, or if it is `final` the transcript of all of that."""
        async with self._lock:
            stream = self._serving(end, is_pushed=is_pushed)
            try:
                transcript = await (stream.conclusion(end) if final else stream.partial(end))
            except SensoriumError:
                self._stream = None
                raise
            if final and end != self._reported_end:
                self._reported_end = end
                self._on_final(transcript)
            return transcript

    def close(self) -> None:
        """Give back at once what the engine keeps for the turn. May be called more than once."""
        self._is_closed = True
        if self._stream is not None:
            self._stream.scope.cancel()

    def _serving(self, end: int, *, is_pushed: bool) -> _Stream:
        """The stream, or a new one: of the whole turn, where none runs that has not gone further."""
        if self._is_closed:
            raise trio.ClosedResourceError("the turn is closed")
        stream = self._stream
        if stream is not None and not stream.is_over and stream.wanted_end <= end:
            return stream
        if stream is not None:
            stream.scope.cancel()
        lane = msgspec.structs.replace(FILE if is_pushed else LIVE_PARTIAL, caller=self._caller)
        reader = TokenReader(self._family, self._options)
        feed = Feed(self._family, self._read, self._delay, self._start, reader)
        self._stream = _Stream(self._family, self._options, self._delay, lane, feed, self._start)
        self._nursery.start_soon(self._stream.serve)
        return self._stream
