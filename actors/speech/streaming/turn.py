"""One turn while it is being spoken, by a model that streams: a chunk is computed once, and its text stays.

If the engine has gone down the next question begins a new run with the same audio, and the text is the same.
Read `actors/speech/streaming/run.py` for how a run is held.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio

from ....protocols.errors import SensoriumError
from ....protocols.transcription.streaming import ChunkDelay
from ....protocols.transcription.transcript import Transcript, TranscriptionOptions
from ..model import FILE, LIVE_PARTIAL, ReadAudio
from .family import StreamingFamily
from .feed import Feed
from .reader import TokenReader
from .run import StreamRun


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
        self._run: StreamRun[TokenReader] | None = None
        self._lock = trio.Lock()
        self._is_closed = False
        self._reported_end: int | None = None

    async def hypothesis(
        self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
    ) -> Transcript:
        """What the chunks of `[start, end)` say, or if it is `final` the transcript of all of that."""
        async with self._lock:
            run = self._serving(end, is_pushed=is_pushed)
            try:
                reader = await (run.conclude(end) if final else run.advance(end))
            except SensoriumError:
                self._run = None
                raise
            settled = len(run.feed.reader.text.rstrip())
            made = reader.final if final else reader.transcript
            transcript = made(end - self._start, num_settled=settled)
            if final and end != self._reported_end:
                self._reported_end = end
                self._on_final(transcript)
            return transcript

    def close(self) -> None:
        """Give back at once what the engine keeps for the turn. May be called more than once."""
        self._is_closed = True
        if self._run is not None:
            self._run.scope.cancel()

    def _serving(self, end: int, *, is_pushed: bool) -> StreamRun[TokenReader]:
        """The run, or a new one: of the whole turn, where none runs that has not gone further."""
        if self._is_closed:
            raise trio.ClosedResourceError("the turn is closed")
        run = self._run
        if run is not None and not run.is_over and run.wanted_end <= end:
            return run
        if run is not None:
            run.scope.cancel()
        lane = msgspec.structs.replace(FILE if is_pushed else LIVE_PARTIAL, caller=self._caller)
        reader = TokenReader(self._family, self._options)
        feed = Feed(self._family, self._read, self._delay, self._start, reader)
        self._run = StreamRun(self._family, self._options, self._delay, lane, feed)
        self._nursery.start_soon(self._run.serve)
        return self._run
