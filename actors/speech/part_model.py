"""What speech models whose tokens come with frames have in common: recordings, options and counts.

`streaming/transcriber.py` and `windowed/transcriber.py` say how such a model hears a part of a recording,
and a live turn. Read `actors/speech/model.py` for what is promised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from ...media.speech.voice_activity import VoiceActivityModel
from ...media.transcript.range_answer import Samples
from ...protocols.engine.messages import Lane
from ...protocols.engine.statistics import SpeechStatistics
from ...protocols.transcription.transcript import Task, TimedSegment, Transcript, TranscriptionOptions
from .channels import transcribe_channels
from .model import FILE, check_task
from .parts import PartTranscriber, ReadPart, check_supported
from .statistics import SpeechCounts
from .streaming.family import TokenFamily

F = TypeVar("F", bound=TokenFamily)


class PartModel(ABC, Generic[F]):
    """The part of a `SpeechModel` that is about recordings. Holds no state of any request."""

    supports_left_context = False
    spells_numbers = False
    takes_hints = False
    tasks: tuple[Task, ...] = ("transcribe",)

    def __init__(self, family: F, activity: VoiceActivityModel | None = None) -> None:
        """`activity` finds what `TranscriptionOptions.speech_filter` leaves out."""
        self.family = family
        self._activity = activity
        self._counts = SpeechCounts()

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO codes that may be asked for."""
        return self.family.languages

    def statistics(self) -> SpeechStatistics:
        """What came of all transcripts so far."""
        return self._counts.statistics()

    def check(self, options: TranscriptionOptions) -> None:
        """Raise BadRequestError, naming the field, for a language or task it does not know, or an option that
        it could only ignore."""
        check_task(options, self.tasks, self.languages)
        check_supported(options)

    @abstractmethod
    def part_reader(self, options: TranscriptionOptions, lane: Lane) -> ReadPart:
        """Gives the tokens of the parts of one recording."""

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
        transcript = await PartTranscriber(
            family=self.family,
            activity=self._activity,
            read=self.part_reader(options, lane),
            options=options,
            on_delta=on_delta,
            on_segment=on_segment,
        ).transcribe(samples, lane)
        self._counts.count(transcript)
        return transcript
