"""Feeds one run with the audio of a stream, whole chunks at a time, and again from its beginning if the
engine has lost the run's states.

The audio stays with who gives `read`, so what was lost is only time: tokens that were given are not given
again. Read `actors/inference/client.py` for the run, `actors/speech/streaming/turn.py` for who calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Generic, Protocol, Self, TypeVar

import msgspec
import numpy as np
import trio

from ....protocols.engine.messages import (
    Features,
    InputChunk,
    StateEvicted,
    Transduced,
    TransduceEvent,
)
from ....protocols.errors import OverloadedError
from ....protocols.transcription.streaming import ChunkDelay
from ...inference.client import FedRun
from ...runtime.off_loop import off_loop
from ..model import ReadAudio
from .family import ChunkedFeatures, Frames, StreamingFamily

MOST_ROWS: Final = 112
"""Of the encoder that a file, or a turn that is fed again, has in one step, which cannot be interrupted: nine
seconds of audio. A multiple of the chunks of 1 and 7 and 14 rows."""
_INLINE_SAMPLES: Final = 4_800
"""Features of so much audio are computed on the loop: a millisecond on a Zen 3."""
_RETRY_S: Final = 0.02
"""After which a chunk is fed again that the engine had no room for."""


class StreamReader(Protocol):
    """Takes the tokens of one stream. Rows are frames of the encoder, counted from the stream's beginning."""

    num_rows: int
    """That are answered."""
    is_over: bool
    """The last chunk was answered."""

    @property
    def resume_row(self) -> int:
        """Where a chunk begins from which the audio is fed to a run that knows nothing of the stream."""
        ...

    def push(self, event: Transduced, /) -> object:
        """Take what a chunk brought, but for the tokens of rows that are answered."""
        ...

    def copy(self) -> Self:
        """One that goes on from here by itself."""
        ...


ReaderT = TypeVar("ReaderT", bound=StreamReader)


class ResumedLater(Exception):  # noqa: N818 (no error)
    """A run has lost its states, and its input begins with a later row now: it is another request."""


class Feed(Generic[ReaderT]):
    """How far a run is fed with `[start, …)` of what `read` gives, and what came of that."""

    def __init__(
        self, family: StreamingFamily, read: ReadAudio, delay: ChunkDelay, start: int, reader: ReaderT
    ) -> None:
        self._family, self._read, self._delay = family, read, delay
        self._start = start
        self.reader = reader
        self._is_fork = False
        self._begin(is_again=False)

    def _begin(self, *, is_again: bool) -> None:
        """Feed from where the reader resumes."""
        self._first_row = self.reader.resume_row
        """The run's first row, of the stream's."""
        self._features: ChunkedFeatures = self._family.features(self._delay)
        self._origin = self._start + self._first_row * self._family.row_samples
        self.position = self._origin
        """Samples before it are fed, or in the features."""
        self._num_rows = 0
        """The stream's rows up to the end of the chunks that were fed."""
        self._is_again = is_again
        """The next chunk is the first one, once more."""

    def fork(self) -> Feed[ReaderT]:
        """One of a run that goes on from here by itself."""
        made = Feed(self._family, self._read, self._delay, self._start, self.reader.copy())
        made._is_fork, made._first_row, made._origin = True, self._first_row, self._origin
        made._features, made.position = self._features.copy(), self.position
        made._num_rows, made._is_again = self._num_rows, self._is_again
        return made

    @property
    def is_at_chunk(self) -> bool:
        """No frame waits for a chunk to be full: the rest would be empty."""
        num_frames: int = self._features.rest().shape[1]
        return num_frames == 0

    async def advance(self, run: FedRun, end: int) -> None:
        """Feed every chunk that is full at sample `end`, and take what comes of it.

        Raises ResumedLater if another run must be fed.
        """
        while self.position < end:
            for chunk in await self._next(end):
                await self._feed(run, chunk)
            await self._take(aiter(run))

    async def conclude(self, run: FedRun, end: int) -> None:
        """The audio ends at sample `end`: feed the rest, and take all."""
        answers = aiter(run)
        while not self.reader.is_over:
            await self.advance(run, end)
            rest = self._features.rest()
            await self._feed(run, self._chunk(rest, is_last=True))
            while not self.reader.is_over and await self._take_one(answers):
                pass

    async def _next(self, end: int) -> Sequence[InputChunk]:
        """The chunks that are full, as few steps, after some more audio."""
        most = self._delay.size * max(1, MOST_ROWS * self._family.row_samples // self._delay.size)
        last = min(end, self.position + most)
        samples = self._read(self.position, last)
        full = await off_loop(
            lambda: self._features.append(samples), size=len(samples), most_inline=_INLINE_SAMPLES
        )
        self.position = last
        return [self._chunk(np.concatenate(full, axis=1))] if full else []

    def _chunk(self, frames: Frames, *, is_last: bool = False) -> InputChunk:
        is_first, self._is_again = self._is_again, False
        return InputChunk(
            Features(frames.shape, np.ascontiguousarray(frames).tobytes()),
            frames.shape[1],
            is_last=is_last,
            is_first=is_first,
        )

    async def _feed(self, run: FedRun, chunk: InputChunk) -> None:
        if not chunk.is_last:
            self._num_rows = self._rows_at(self.position)
        while True:
            try:
                await run.feed(chunk)
            except OverloadedError:
                await trio.sleep(_RETRY_S)  # only where much is fed again, and nothing new comes of it
            else:
                return

    async def _take(self, answers: AsyncIterator[TransduceEvent]) -> None:
        """What the chunks bring that were fed, unless it was given before."""
        while self.reader.num_rows < self._num_rows and await self._take_one(answers):
            pass

    async def _take_one(self, answers: AsyncIterator[TransduceEvent]) -> bool:
        """The next answer; False if all must be fed again."""
        event = await anext(answers)
        if isinstance(event, Transduced):
            self.reader.push(self._placed(event))
            return True
        assert isinstance(event, StateEvicted)
        moves = self.reader.resume_row != self._first_row and not self._is_fork
        self._begin(is_again=not moves)
        if moves:
            raise ResumedLater
        return False

    def _placed(self, event: Transduced) -> Transduced:
        """With the stream's rows."""
        if not self._first_row:
            return event
        return msgspec.structs.replace(
            event,
            frames=tuple(frame + self._first_row for frame in event.frames),
            num_frames=event.num_frames + self._first_row,
        )

    def _rows_at(self, position: int) -> int:
        """The stream's rows up to the end of all chunks that are full there."""
        full = self._delay.last_full(position - self._origin)
        if not full:
            return 0
        num_chunks = (full - self._delay.first) // self._delay.size + 1
        return self._first_row + num_chunks * self._delay.size // self._family.row_samples
