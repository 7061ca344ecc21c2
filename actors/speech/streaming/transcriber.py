"""A speech model that streams: live turns are runs that are fed, and a recording is one in large steps.

So a file's transcript is that of a turn with the same audio and the same delay. It has the default delay:
no one waits for its first word. Read `actors/speech/model.py` for what is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import trio

from ....media.transcript.range_answer import Range, Samples
from ....protocols.engine.messages import Lane
from ....protocols.transcription.streaming import ChunkDelay
from ....protocols.transcription.transcript import TranscriptionOptions
from ..model import ReadAudio
from ..part_model import PartModel
from ..parts import ReadPart
from .captions import StreamedCaptions
from .family import StreamingFamily
from .feed import MOST_ROWS, Feed
from .reader import TokenReader
from .run import request_of
from .turn import StreamedTurn


class StreamingTranscriber(PartModel[StreamingFamily]):
    """Transcribes with one model (a `SpeechModel`). Holds no state of any request."""

    @property
    def delays(self) -> tuple[ChunkDelay, ...]:
        """Of which a live turn has one, the default first."""
        return self.family.delays

    def part_reader(self, options: TranscriptionOptions, lane: Lane) -> ReadPart:
        """Gives the tokens of parts, each a stream of its own."""
        return partial(self._read, options=options, lane=lane)

    async def _read(
        self,
        samples: Samples,
        part: Range,
        reader: TokenReader,
        on_tokens: Callable[[], None],
        *,
        options: TranscriptionOptions,
        lane: Lane,
    ) -> None:
        start, end = part
        family, delay = self.family, self.family.delays[0]
        feed = Feed(family, lambda first, last: samples[first:last], delay, start, reader)
        async with (
            family.engine.placed(lane=lane) as place,
            place.run(request_of(family, options, delay, lane)) as run,
        ):
            step = MOST_ROWS * family.row_samples
            for position in range(start, end, step):
                await feed.advance(run, min(position + step, end))
                on_tokens()
            await feed.conclude(run, end)

    def live(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        before: Sequence[int] = (),
        spoken: str | None = None,
        caller: str = "",
        delay_ms: int | None = None,
        nursery: trio.Nursery | None = None,
    ) -> StreamedTurn:
        """See `SpeechModel.live`; a stream begins with its turn, and recognises the language by itself."""
        assert nursery is not None, "a stream is held by a task"
        return StreamedTurn(
            self.family,
            read,
            options,
            start=start,
            delay=self.family.delay(delay_ms),
            nursery=nursery,
            caller=caller,
            on_final=self._counts.count,
        )

    def stream(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        nursery: trio.Nursery,
        caller: str = "",
        delay_ms: int | None = None,
    ) -> StreamedCaptions:
        """See `SpeechModel.stream`."""
        return StreamedCaptions(
            self.family,
            read,
            options,
            start=start,
            delay=self.family.delay(delay_ms),
            nursery=nursery,
            caller=caller,
            on_final=self._counts.count,
        )
