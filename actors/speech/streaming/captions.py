"""A stream of hours by one model: each chunk is computed once, and its states are never made new.

Where the engine has lost the states, the stream is fed again from the chunk with the first word that nobody
has taken: text that was given is not given again, and what comes next is heard behind that much audio only.
Read `actors/speech/streaming/segments.py` for how its text is cut, `run.py` for how the engine's run is held.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import trio

from ....protocols.errors import SensoriumError
from ....protocols.transcription.streaming import ChunkDelay, Segmentation, StreamAnswer, StreamSegment
from ....protocols.transcription.transcript import Transcript, TranscriptionOptions
from ..model import FILE, LIVE_PARTIAL, ReadAudio
from .family import StreamingFamily
from .feed import Feed
from .run import StreamRun
from .segments import SegmentReader


class StreamedCaptions:
    """A stream that starts at `start` (a `LiveStream`). A second call waits for the first."""

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
        """Runs are held by tasks in `nursery`. `on_final` gets the transcript of each segment once."""
        self._family, self._read, self._options = family, read, options
        self._start, self._delay, self._caller = start, delay, caller
        self._nursery, self._on_final = nursery, on_final
        self._reader = SegmentReader(family, options, delay)
        self._run: StreamRun[SegmentReader] | None = None
        self._lock = trio.Lock()
        self._counted_end = 0
        """Segments up to there were given to `on_final`."""

    async def segments(
        self, start: int, end: int, segmentation: Segmentation, *, is_pushed: bool = False
    ) -> StreamAnswer:
        """See `LiveStream.segments`."""
        async with self._lock:
            self._reader.segmentation = segmentation
            self._begin_at(start)
            reader = await self._asked(lambda run: run.advance(end), is_pushed=is_pushed)
            found = tuple(map(self._placed, reader.segments()))
            for segment in found:
                if segment.is_over and segment.end > self._counted_end:
                    self._counted_end = segment.end
                    self._on_final(segment.transcript)
            next_start = max(start, min(self._sample_of(reader.next_row), end))
            return StreamAnswer(found, next_start, self._kept_from(next_start))

    async def conclusion(
        self, start: int, end: int, *, shown_start: int, is_pushed: bool = False
    ) -> StreamAnswer:
        """See `LiveStream.conclusion`."""
        async with self._lock:
            self._begin_at(start)
            reader = await self._asked(lambda run: run.conclude(end), is_pushed=is_pushed)
            reader.begin_at(reader.row_at(start - self._start))
            transcript = reader.whole(shown_start - self._start, end - self._start)
            self._on_final(transcript)
            found = StreamSegment(shown_start, end, transcript, is_over=True)
            return StreamAnswer((found,), end, self.skip(end))

    def skip(self, end: int) -> int:
        """See `LiveStream.skip`."""
        self._begin_at(end)
        return self._kept_from(end)

    def release(self) -> None:
        """See `LiveStream.release`."""
        if self._run is not None:
            self._run.scope.cancel()
            self._run = None

    async def _asked(
        self, ask: Callable[[StreamRun[SegmentReader]], Awaitable[SegmentReader]], *, is_pushed: bool
    ) -> SegmentReader:
        """What a run answers, which is made if there is none."""
        try:
            return await ask(self._running(is_pushed=is_pushed))
        except SensoriumError:
            self._run = None
            raise

    def _running(self, *, is_pushed: bool) -> StreamRun[SegmentReader]:
        if self._run is None or self._run.is_over:
            lane = msgspec.structs.replace(FILE if is_pushed else LIVE_PARTIAL, caller=self._caller)
            feed = Feed(self._family, self._read, self._delay, self._start, self._reader)
            self._run = StreamRun(self._family, self._options, self._delay, lane, feed)
            self._nursery.start_soon(self._run.serve)
        return self._run

    def _begin_at(self, sample: int) -> None:
        self._reader.begin_at(self._reader.row_at(sample - self._start))

    def _sample_of(self, row: int) -> int:
        return self._start + row * self._family.row_samples

    def _kept_from(self, sample: int) -> int:
        """Where the chunk begins that has the row of a sample."""
        row = (sample - self._start) // self._family.row_samples
        return self._sample_of(self._reader.chunk_from(row))

    def _placed(self, segment: StreamSegment) -> StreamSegment:
        """On the session's timeline."""
        start, end = segment.start + self._start, segment.end + self._start
        return msgspec.structs.replace(segment, start=start, end=end)
