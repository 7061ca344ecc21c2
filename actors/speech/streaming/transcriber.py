"""A speech model that streams: live turns are runs that are fed, and a recording is one in large steps.

So a file's transcript is that of a turn with the same audio and the same delay. It has the default delay:
no one waits for its first word. Read `actors/speech/model.py` for what is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import trio

from ....media.speech.voice_activity import VoiceActivityModel
from ....media.transcript.range_answer import Range, Samples
from ....protocols.engine.messages import Lane
from ....protocols.engine.statistics import SpeechStatistics
from ....protocols.transcription.streaming import ChunkDelay
from ....protocols.transcription.transcript import Task, TimedSegment, Transcript, TranscriptionOptions
from ..channels import transcribe_channels
from ..model import FILE, ReadAudio, check_task
from ..parts import PartTranscriber, check_supported
from ..statistics import SpeechCounts
from .captions import StreamedCaptions
from .family import StreamingFamily
from .feed import MOST_ROWS, Feed
from .reader import TokenReader
from .run import request_of
from .turn import StreamedTurn


class StreamingTranscriber:
    """Transcribes with one model (a `SpeechModel`). Holds no state of any request."""

    supports_left_context = False
    spells_numbers = False
    takes_hints = False
    tasks: tuple[Task, ...] = ("transcribe",)

    def __init__(self, family: StreamingFamily, activity: VoiceActivityModel | None = None) -> None:
        """`activity` finds what `TranscriptionOptions.speech_filter` leaves out."""
        self.family = family
        self._activity = activity
        self._counts = SpeechCounts()

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO codes that may be asked for."""
        return self.family.languages

    @property
    def delays(self) -> tuple[ChunkDelay, ...]:
        """Of which a live turn has one, the default first."""
        return self.family.delays

    def statistics(self) -> SpeechStatistics:
        """What came of all transcripts so far."""
        return self._counts.statistics()

    def check(self, options: TranscriptionOptions) -> None:
        """Raise BadRequestError, naming the field, for a language or task it does not know, or an option that
        it could only ignore."""
        check_task(options, self.tasks, self.languages)
        check_supported(options)

    async def transcribe(
        self,
        samples: Samples,
        options: TranscriptionOptions,
        *,
        lane: Lane = FILE,
        on_delta: Callable[[str], None] | None = None,
        on_segment: Callable[[TimedSegment], None] | None = None,
    ) -> Transcript:
        """The transcript of `samples`, of any length: see `SpeechModel.transcribe`."""
        self.check(options)
        if options.multichannel:
            return await transcribe_channels(partial(self.transcribe, lane=lane), samples, options)

        async def read(
            samples: Samples, part: Range, reader: TokenReader, on_tokens: Callable[[], None]
        ) -> None:
            await self._read(samples, part, reader, on_tokens, options, lane)

        transcript = await PartTranscriber(
            family=self.family,
            activity=self._activity,
            read=read,
            options=options,
            on_delta=on_delta,
            on_segment=on_segment,
        ).transcribe(samples, lane)
        self._counts.count(transcript)
        return transcript

    async def _read(
        self,
        samples: Samples,
        part: Range,
        reader: TokenReader,
        on_tokens: Callable[[], None],
        options: TranscriptionOptions,
        lane: Lane,
    ) -> None:
        """One part of a recording, as a stream of its own."""
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
